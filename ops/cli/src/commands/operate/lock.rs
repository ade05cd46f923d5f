use sekali_consumer::operate::Listed;
use sekali_consumer::operate::locks::{self, Filter, Kind, Lease};

use crate::args::{Global, KindArg, LockCommand};
use crate::exit::{Failure, Outcome};
use crate::output::{self, and_more, seconds};

pub(super) async fn run(global: &Global, command: LockCommand) -> Result<Outcome, Failure> {
    let pool = super::database(global).await?;
    match command {
        LockCommand::List { kind, group, name, limit } => {
            let kind = kind.map(|it| match it {
                KindArg::Lock => Kind::Lock,
                KindArg::Relay => Kind::Relay,
                KindArg::Effect => Kind::Effect,
            });
            let listed = locks::list(&pool, &Filter { kind, group, name }, limit.into()).await?;
            output::show(global.output, &listed, text)?;
            Ok(Outcome::Done)
        }
        LockCommand::Release { name, group, fence, signed } => {
            let filter = Filter { name: Some(name.clone()), group, kind: None };
            let listed = locks::list(&pool, &filter, 2).await?;
            let lease = match &listed.rows[..] {
                [] => {
                    return Err(Failure::error(format!("nobody has a lease named \"{name}\": see `sekali lock list`")));
                }
                [one] => one,
                _ => return Err(Failure::usage(format!("several leases are named \"{name}\": add --group"))),
            };
            if let Some(wanted) = fence.filter(|it| *it != lease.fence) {
                let is = lease.fence;
                return Err(Failure::error(format!(
                    "the lease has fence {is} and not {wanted}: another one has it by now"
                )));
            }
            let Some(released) = locks::release(&pool, lease, &super::actor(&signed)).await? else {
                return Err(Failure::error("the lease ended, or changed its owner, just now: look again"));
            };
            output::show(global.output, &released, |it| {
                let (kind, name, owner, fence) = (it.kind.as_str(), &it.name, it.owner, it.refused_fence);
                format!("released {kind} {name}: {owner} is refused from now on under fence {fence}\n")
            })?;
            Ok(Outcome::Done)
        }
    }
}

fn text(listed: &Listed<Lease>) -> String {
    let rows = listed.rows.iter().map(|it| {
        let left = if it.left_seconds < 0.0 {
            format!("ran out {} ago", seconds(-it.left_seconds))
        } else {
            seconds(it.left_seconds)
        };
        [
            it.kind.as_str().to_owned(),
            it.name.clone(),
            it.group.clone().unwrap_or_else(|| "-".to_owned()),
            it.fence.to_string(),
            it.age_seconds.map_or_else(|| "-".to_owned(), seconds),
            left,
            it.owner.to_string(),
        ]
    });
    output::table(["KIND", "NAME", "GROUP", "FENCE", "AGE", "TIME LEFT", "OWNER"], rows) + &and_more(listed.more)
}
