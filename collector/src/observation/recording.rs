//! The recording: observations as JSON Lines, plain or zstd-compressed (docs/recording.md is the promise to users).
