//! Every adapter against the suite of its port.
#![cfg(feature = "testing")]

mod embedded;
