//! What no other type holds.

use serde::{Deserialize, Serialize};

use super::Text;

/// What somebody who looks at the node should know and no other type holds. No rule looks at it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Note<'a> {
    /// Where it comes from, for example the name of an imported file.
    #[serde(borrow)]
    pub source: Text<'a>,
    /// A sentence.
    pub text: Text<'a>,
}
