//! What every page has.

use axum::response::Html;
use maud::{DOCTYPE, Markup, html};

use super::runbooks;
use crate::console::Shared;
use crate::console::access::Operator;
use crate::console::body::CSRF_FIELD;

/// The screens, with their addresses.
const SCREENS: [(&str, &str); 5] = [
    ("/", "Groups"),
    ("/messages", "Messages"),
    ("/operations", "Operations"),
    ("/topics", "Topics"),
    ("/audit", "Audit"),
];

/// A page for somebody.
pub(super) struct Frame<'a> {
    pub(super) console: &'a Shared,
    pub(super) operator: &'a Operator,
    pub(super) title: &'a str,
    /// Address of the screen that it belongs to.
    pub(super) screen: &'a str,
    pub(super) runbook: &'static str,
}

impl Frame<'_> {
    pub(super) fn page(&self, content: Markup) -> Html<String> {
        let read_only = self.console.section.read_only;
        let page = document(
            self.title,
            html! {
                header.top {
                    strong { "Sekali" }
                    nav aria-label="Screens" {
                        @for (address, name) in SCREENS {
                            a href=(address) aria-current=[(address == self.screen).then_some("page")] { (name) }
                        }
                    }
                    div.who {
                        @if read_only { span.state.discarded { "read-only" } }
                        @if let Some(name) = &self.operator.name { span { (name) } }
                        @if self.operator.has_session() {
                            form.inline method="post" action="/logout" {
                                (csrf(self.console, self.operator))
                                button.second { "Log out" }
                            }
                        }
                    }
                }
                main #main {
                    h1 { (self.title) }
                    (content)
                }
                footer { "Runbook: " (runbooks::link(self.runbook)) }
            },
        );
        Html(page.into_string())
    }

    /// Whether buttons are shown that change something.
    pub(super) fn may_act(&self) -> bool {
        !self.console.section.read_only && self.operator.name.is_some()
    }

    pub(super) fn csrf(&self) -> Markup {
        csrf(self.console, self.operator)
    }
}

/// The field that proves that a form is ours.
pub(super) fn csrf(console: &Shared, operator: &Operator) -> Markup {
    html! { input type="hidden" name=(CSRF_FIELD) value=(console.access.csrf(operator)); }
}

/// A page for nobody in particular.
pub(in crate::console) fn bare(title: &str, content: Markup) -> Markup {
    document(
        title,
        html! {
            header.top { strong { "Sekali" } }
            main #main {
                h1 { (title) }
                (content)
            }
        },
    )
}

fn document(title: &str, body: Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) " - Sekali" }
                link rel="icon" href="/assets/icon.svg" type="image/svg+xml";
                link rel="stylesheet" href="/assets/console.css";
                script src="/assets/console.js" defer {}
            }
            body {
                a.skip href="#main" { "To the content" }
                (body)
            }
        }
    }
}
