//! What a store is asked to do, one name for each kind of request.
//!
//! No request is made without one, so this is the list of the steps between which a process may end:
//! tests end it before and after each (see [`passes`](Operation::passes)).

use std::fmt;

macro_rules! operations {
    ($($name:ident = $words:literal,)*) => {
        /// A kind of request to a store: one round trip to a server, one transaction on a file.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[expect(missing_docs, reason = "each has its words")]
        pub enum Operation {
            $($name,)*
        }

        impl Operation {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// What errors call it.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $words,)*
                }
            }

            /// The name of one side of it among the failpoints.
            #[must_use]
            pub const fn failpoint(self, side: Side) -> &'static str {
                match (self, side) {
                    $((Self::$name, Side::Before) => concat!("before ", $words),
                    (Self::$name, Side::After) => concat!("after ", $words),)*
                }
            }
        }
    };
}

operations! {
    Send = "send",
    Advance = "advance",
    Reserve = "reserve",
    ReadPayloads = "reading payloads",
    Extend = "extend",
    Settle = "settle",
    KeepEnded = "noting what has ended",
    Release = "release",
    Cancel = "cancel",
    Reschedule = "reschedule",
    Pause = "pause",
    Count = "counting",
    Overview = "overview",
    Get = "get",
    List = "listing",
    Redrive = "redrive",
    DeleteDead = "deleting dead letters",
    Audit = "audit",
    BeginTransfer = "beginning a move",
    Export = "export",
    Import = "import",
    RemoveExported = "removing what was exported",
    CommitImport = "committing what was imported",
    NameQueue = "naming the queue",
    ListQueues = "listing the queues",
    Heartbeat = "heartbeat",
    Leave = "leave",
    ListHosts = "listing the hosts",
    Events = "events",
    Open = "opening",
    ReadInfo = "reading INFO",
    ReadSlots = "reading CLUSTER SLOTS",
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Which side of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// It is about to be made.
    Before,
    /// It was answered, and nobody knows of the answer yet.
    After,
}

impl Operation {
    /// Where the process ends when a test has said so (`FAILPOINTS="after settle=return"`): without
    /// any tidying up, as if it had been killed. Only in builds with debug assertions.
    #[inline]
    pub(super) fn passes(self, side: Side) {
        // Failpoints are nothing but in tests.
        let _ = (self, side);
        #[cfg(debug_assertions)]
        {
            fail::fail_point!(self.failpoint(side), |_| std::process::abort());
        }
    }
}
