//! What a host is to serve, as the command line and the file say.

use super::config::{Config, TableArgs};
use super::handlers::Plan;
use super::host_args::{DeliveryArgs, UpArgs};
use super::{DEFAULT_QUEUE, Usage};
use crate::host::QueueSettings;
use crate::message::QueueName;
use crate::runtime::Limits;
use crate::store::address::Endpoints;
use crate::store::{Retention, Store};

/// What holds for each queue that is served.
pub(super) fn plans(
    args: &UpArgs,
    config: &Config,
    never: &Endpoints,
) -> anyhow::Result<Vec<Plan>> {
    let mut names = config.queue_names(args);
    if names.is_empty() {
        names.push(
            DEFAULT_QUEUE
                .parse()
                .map_err(|error| Usage(format!("{error}")))?,
        );
    }
    let (mut plans, is_one): (Vec<Plan>, _) = (Vec::new(), names.len() == 1);
    for queue in names {
        if plans.iter().any(|plan| plan.queue == queue) {
            return Err(Usage(format!("queue {queue} is given twice")).into());
        }
        let (of_queue, table) = config.of_queue(&queue)?;
        let spec = args.queue.iter().find(|spec| spec.name == queue);
        let own = spec.and_then(|spec| spec.handler.clone());
        let file = own.or(of_queue.handler).ok_or_else(|| {
            Usage(format!(
                "queue {queue} has no handler: give --handler FILE, or --queue {queue}=FILE, or set it \
                 in dqhost.toml"
            ))
        })?;
        let permissions = of_queue
            .sandbox
            .permissions(never.clone(), of_queue.delivery.retries);
        plans.push(Plan {
            file,
            permissions: permissions.map_err(|error| in_queue(&queue, is_one, error))?,
            settings: QueueSettings {
                schedules: config.schedules_of(&queue, of_queue.delivery.retries),
                ..settings(&of_queue.delivery, &table)
                    .map_err(|error| in_queue(&queue, is_one, error))?
            },
            sandbox: of_queue.sandbox,
            queue,
        });
    }
    Ok(plans)
}

/// Says which of several queues has a mistake.
fn in_queue(queue: &QueueName, is_one: bool, Usage(reason): Usage) -> Usage {
    if is_one {
        Usage(reason)
    } else {
        Usage(format!("queue {queue}: {reason}"))
    }
}

fn settings(delivery: &DeliveryArgs, table: &TableArgs) -> Result<QueueSettings, Usage> {
    Ok(QueueSettings {
        lease: delivery.lease,
        backoff: delivery.backoff.backoff()?,
        give_up_after: delivery.backoff.give_up_after,
        retries_default: delivery.retries,
        retention: Retention {
            age: delivery.dead_max_age,
            number: delivery.dead_max,
        },
        max_redrives: delivery.max_redrives,
        keep_ended: delivery.keep_ended,
        keep_results: delivery.keep_results,
        slots: table.slots,
        weight: table.weight,
        limits: delivery.limits.limits()?,
        schedules: Vec::new(),
    })
}

/// The limits of the engine: those of the host, with room for each queue's.
pub(super) fn limits(args: &UpArgs, plans: &[Plan]) -> Limits {
    plans
        .iter()
        .map(|plan| plan.sandbox.limits())
        .fold(args.sandbox.limits(), |host, of_queue| Limits {
            memory: host.memory.max(of_queue.memory),
            table_elements: host.table_elements.max(of_queue.table_elements),
            ..host
        })
}

/// What a handler sends has to be accepted in one step with its ack.
pub(super) fn check_sends(store: &dyn Store, plans: &[Plan]) -> Result<(), Usage> {
    for plan in plans {
        let (queue, to) = (&plan.queue, &plan.permissions.sends);
        if let Some(other) = to.iter().find(|to| !store.can_send_along(queue, to)) {
            return Err(Usage(format!(
                "handlers of queue {queue} cannot send to queue {other}: in Redis Cluster another \
                 queue is in another slot, and what a handler sends has to be accepted in one step \
                 with its ack; allow --allow-send {queue} alone, or use one Redis server"
            )));
        }
    }
    Ok(())
}
