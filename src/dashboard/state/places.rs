//! The places where an operator was: back to them, and forward again.

use super::{Reasons, Screen, State};
use crate::control::Filter;
use crate::message::{MessageId, QueueName};

/// Places that are kept each way.
const PLACES_MAX: usize = 50;

/// Where an operator is.
#[derive(Debug, Clone)]
struct Place {
    screen: &'static dyn Screen,
    opened: Option<(QueueName, MessageId)>,
    queue: Option<QueueName>,
    list: usize,
    filter: Filter,
    group: Option<Reasons>,
    open_trial: Option<u64>,
    line: (usize, usize),
    anchor: Option<String>,
}

impl Place {
    /// True for the same place, wherever its selected line is.
    fn is(&self, other: &Self) -> bool {
        self.screen.name() == other.screen.name()
            && self.opened == other.opened
            && (self.queue == other.queue || !self.screen.is_of_one_queue())
            && self.list == other.list
            && self.filter == other.filter
            && self.group == other.group
            && self.open_trial == other.open_trial
    }
}

/// The places before and after the present one.
#[derive(Debug, Default)]
pub struct Places {
    now: Option<Place>,
    before: Vec<Place>,
    after: Vec<Place>,
}

impl State {
    fn place(&self) -> Place {
        let opened = self.opened.as_ref();
        Place {
            screen: self.screen,
            opened: opened.map(|opened| (opened.queue.clone(), opened.id.clone())),
            queue: self.queue.clone(),
            list: self.state,
            filter: self.filter.clone(),
            group: self.group.clone(),
            open_trial: self.open_trial,
            line: (self.offset, self.selected),
            anchor: self.anchor.clone(),
        }
    }

    /// Notes where the operator is. What they did not do themselves is no step from one place to another.
    pub(in crate::dashboard) fn note_place(&mut self, is_step: bool) {
        let place = self.place();
        let places = &mut self.places;
        if let Some(now) = places.now.take().filter(|now| is_step && !now.is(&place)) {
            places.after.clear();
            places.before.push(now);
            if places.before.len() > PLACES_MAX {
                places.before.remove(0);
            }
        }
        places.now = Some(place);
    }

    /// Goes to the place before, or to the one after. False if there is none.
    pub(in crate::dashboard) fn go_to_place(&mut self, is_back: bool) -> bool {
        let now = self.place();
        let places = &mut self.places;
        let (from, to) = if is_back {
            (&mut places.before, &mut places.after)
        } else {
            (&mut places.after, &mut places.before)
        };
        let Some(place) = from.pop() else {
            return false;
        };
        to.push(now);
        places.now = Some(place.clone());
        self.show(place.screen);
        self.queue = place.queue;
        self.state = place.list;
        self.filter = place.filter;
        self.group = place.group;
        self.open_trial = place.open_trial;
        (self.offset, self.selected) = place.line;
        self.anchor = place.anchor;
        if let Some((queue, id)) = place.opened {
            self.open(queue, id);
        }
        true
    }
}
