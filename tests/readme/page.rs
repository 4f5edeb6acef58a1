//! README.md as data: its shell blocks with the marks that stand above them, and other fenced text.

/// The page.
pub(crate) const README: &str = include_str!("../../README.md");

/// A shell block of the page.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// `run: NAME` or `not run: REASON`; empty when there is no mark.
    pub(crate) mark: String,
    pub(crate) text: String,
}

/// Every `sh` block in order.
pub(crate) fn blocks(page: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut mark = String::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if let Some(comment) = line.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->")) {
            mark = comment.to_owned();
        } else if let Some(language) = line.strip_prefix("```") {
            let text: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            if language == "sh" {
                found.push(Block { mark: std::mem::take(&mut mark), text: text.join("\n") + "\n" });
            }
        } else if !line.is_empty() {
            mark.clear();
        }
    }
    found
}

/// The text of the block that is run under this name.
pub(crate) fn block(name: &str) -> String {
    let mark = format!("run: {name}");
    let found = blocks(README).into_iter().find(|block| block.mark == mark);
    found.unwrap_or_else(|| panic!("README.md has no block marked {mark:?}")).text
}

/// The first fenced block of a language.
pub(crate) fn fenced(language: &str) -> String {
    let begin = format!("\n```{language}\n");
    let rest = README.split_once(&begin).expect("a block of this language").1;
    rest.split_once("\n```").expect("its end").0.to_owned() + "\n"
}
