//! Facts the model must keep.
