//! Tells aya that the shared types are plain bytes, so that they can go through maps and globals.

#![allow(unsafe_code, reason = "`aya::Pod` is an unsafe marker trait; each impl says why it holds")]

use crate::config::Config;
use crate::fan::FanCounts;
use crate::slot::{ContextKey, Name, QpKey, SlotKey, Totals};

// SAFETY: `repr(C)`, only integers, no padding (asserted where the type is defined), every bit pattern valid.
unsafe impl aya::Pod for Config {}
// SAFETY: as above.
unsafe impl aya::Pod for ContextKey {}
// SAFETY: as above.
unsafe impl aya::Pod for FanCounts {}
// SAFETY: as above.
unsafe impl aya::Pod for Name {}
// SAFETY: as above.
unsafe impl aya::Pod for QpKey {}
// SAFETY: as above.
unsafe impl aya::Pod for SlotKey {}
// SAFETY: as above.
unsafe impl aya::Pod for Totals {}
