//! One kind of death for all subjects at once, each at its own point.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::time::Instant;

use futures_util::FutureExt;
use futures_util::future::{join_all, try_join_all};

use crate::child::Role;
use crate::judge::Findings;
use crate::point::POINTS;
use crate::servers::Servers;
use crate::subject::Subject;
use crate::verdict::Verdict;

/// What is killed in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Death {
    /// Of each subject the worker, or the relay where that is a process of its own.
    Processes,
    Postgres,
    Broker,
}

impl Death {
    pub(crate) const ALL: [Death; 3] = [Death::Processes, Death::Postgres, Death::Broker];

    /// Whether it comes in this round. Processes die in each; servers, whose restart takes longer, in some.
    pub(crate) fn comes_in(self, round: usize) -> bool {
        match self {
            Death::Processes => true,
            Death::Postgres => round.is_multiple_of(2),
            Death::Broker => round.is_multiple_of(4),
        }
    }

    /// Name of the victim in the verdict.
    fn of(self, subject: &Subject) -> &'static str {
        match (self, subject.victim()) {
            (Death::Processes, Role::Worker) => "worker",
            (Death::Processes, Role::Relay) => "relay",
            (Death::Postgres, _) => "postgres",
            (Death::Broker, _) => "broker",
        }
    }
}

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Death::Processes => "workers and relays",
            Death::Postgres => "PostgreSQL",
            Death::Broker => "the broker",
        })
    }
}

/// What becomes of the bytes that are held when the victim dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Held {
    Lost,
    Late,
    /// Not before the victim's successor runs.
    VeryLate,
}

impl Held {
    fn at_death(number: usize) -> Held {
        [Held::Lost, Held::Late, Held::VeryLate][number % 3]
    }
}

/// All groups, on one broker and one database server.
pub(crate) struct Stage {
    servers: Servers,
    subjects: Vec<Subject>,
    /// How often each has come.
    deaths: [usize; Death::ALL.len()],
}

impl Stage {
    /// Sets up the points whose names contain `only`.
    pub(crate) async fn set(only: &str) -> Result<Stage, anyhow::Error> {
        let servers = Servers::start().await?;
        let points = POINTS.iter().filter(|it| it.name.contains(only));
        let both = points.flat_map(|it| [(it, false), (it, true)]).filter(|(it, apart)| it.is_of_relay() || !apart);
        let subjects = try_join_all(both.map(|(point, apart)| Subject::new(&servers, point, apart))).await?;
        Ok(Stage { servers, subjects, deaths: [0; Death::ALL.len()] })
    }

    /// Brings every subject to its point, kills, restarts, and judges.
    pub(crate) async fn round(
        &mut self,
        number: usize,
        death: Death,
        verdict: &mut Verdict,
    ) -> Result<(), anyhow::Error> {
        let begin = Instant::now();
        let servers = &self.servers;
        let reached = join_all(self.subjects.iter_mut().map(|it| guarded(it.approach(servers)))).await;
        let approach = begin.elapsed();
        self.kill(death).await?;
        let kafka = self.servers.broker.kafka();
        let recovered =
            join_all(self.subjects.iter_mut().zip(&reached).map(async |(subject, reached)| match reached {
                Ok(()) => guarded(subject.recover(kafka)).await,
                Err(not_reached) => Err(not_reached.clone()),
            }))
            .await;
        let mut bad = 0;
        for (subject, outcome) in self.subjects.iter_mut().zip(recovered) {
            let (wrong, republished) = match outcome {
                Ok(Findings { wrong, republished }) => (wrong, republished),
                Err(text) => (vec![text], 0),
            };
            verdict.add(subject.point.name, death.of(subject), number, &wrong, republished);
            if !wrong.is_empty() {
                bad += 1;
                println!("VIOLATION {} {}: {}", subject.point.name, death.of(subject), wrong.join("; "));
                println!("{}", subject.logs());
                // What is broken would be found broken in every round to come.
                *subject = Subject::new(&self.servers, subject.point, subject.has_own_relay).await?;
            }
        }
        println!(
            "round {:>3}: {death} died at {} points, {bad} violations ({:.1} s to the points, {:.1} s in all)",
            number + 1,
            self.subjects.len(),
            approach.as_secs_f32(),
            begin.elapsed().as_secs_f32()
        );
        Ok(())
    }

    async fn kill(&mut self, death: Death) -> Result<(), anyhow::Error> {
        let number = self.deaths[death as usize];
        self.deaths[death as usize] += 1;
        match death {
            Death::Processes => drop(join_all(self.subjects.iter_mut().map(Subject::kill)).await),
            // Two ways to die against three ways of release: all six come.
            Death::Postgres => self.servers.kill_postgres(number.is_multiple_of(2))?,
            Death::Broker => self.servers.broker.kill(),
        }
        let held = Held::at_death(number);
        let release = |subjects: &mut [Subject]| subjects.iter_mut().for_each(|it| it.release(held == Held::Lost));
        if held != Held::VeryLate {
            release(&mut self.subjects);
        }
        match death {
            Death::Processes => self.subjects.iter_mut().try_for_each(Subject::restart)?,
            Death::Postgres => self.servers.restart_postgres()?,
            Death::Broker => self.servers.broker.restart().await?,
        }
        release(&mut self.subjects);
        Ok(())
    }
}

/// The harness panics where something is not as it must be: here, that is a finding.
async fn guarded<T>(work: impl Future<Output = Result<T, anyhow::Error>>) -> Result<T, String> {
    match AssertUnwindSafe(work).catch_unwind().await {
        Ok(outcome) => outcome.map_err(|error| format!("{error:#}")),
        Err(panic) => Err(match panic.downcast_ref::<String>() {
            Some(text) => text.clone(),
            None => panic.downcast_ref::<&str>().map_or_else(|| "a panic".to_owned(), |it| (*it).to_owned()),
        }),
    }
}
