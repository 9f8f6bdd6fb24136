//! The page: one HTML file with data, style and script in it.
//!
//! Promises upward: nothing of a trace is markup: the data stand as JSON in which no tag can begin, and the title is escaped.
//! Asks from below: the template beside this file.

use super::data::PageData;
use crate::failure::Failure;

const TEMPLATE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");

/// The page as text.
pub fn page(data: &PageData) -> Result<String, Failure> {
    let json = serde_json::to_string(data).map_err(|error| Failure::output("the page".as_ref(), error))?;
    let title = match &data.traces[..] {
        [one] => format!("{} - terrace report", one.name),
        many => format!("{} traces - terrace report", many.len()),
    };
    // The script's text ends at `</script`, whatever is written around it; JSON may write `<` otherwise.
    let json = json.replace('<', "\\u003c");
    let mut page = String::with_capacity(TEMPLATE.len() + STYLE.len() + SCRIPT.len() + json.len());
    let mut rest = TEMPLATE;
    while let Some((before, after)) = rest.split_once('{') {
        let (name, after) = after.split_once('}').unwrap_or((after, ""));
        page.push_str(before);
        match name {
            "title" => page.push_str(&escaped(&title)),
            "version" => page.push_str(data.version),
            "style" => page.push_str(STYLE),
            "script" => page.push_str(SCRIPT),
            _ => page.push_str(&json),
        }
        rest = after;
    }
    page.push_str(rest);
    Ok(page)
}

/// Text of a page, with what would be markup written otherwise.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace_report::data::{MapData, SizesData, TagData, TimelineData, TraceData};

    #[test]
    fn a_name_or_a_tag_that_is_markup_stays_text() {
        let evil = "</script><script>alert(1)</script>{style}<!--";
        let tag = TagData { tag: evil.into(), allocations: 1, allocated_bytes: 1, peak_bytes: 1, live_bytes: 1 };
        let trace = TraceData {
            name: evil.into(),
            events: 1,
            duration_us: 0,
            peak_live_bytes: 1,
            live_at_end_bytes: 1,
            peak_in_use_bytes: 1,
            peak_reserved_bytes: 1,
            failed: 0,
            timeline: TimelineData::default(),
            marks: Vec::new(),
            tags: vec![tag],
            sizes: SizesData { least_size: 0, blocks: Vec::new(), bytes: Vec::new() },
            leaks: Vec::new(),
            map: MapData::default(),
            copies: Vec::new(),
            advice: Vec::new(),
            no_advice: None,
        };
        let page = page(&PageData { version: "0", source: "growing", traces: vec![trace] }).expect("a page");
        assert_eq!(page.matches("<script").count(), 2, "the data's and the page's own");
        assert_eq!(page.matches("</script").count(), 2);
        assert!(page.contains(
            "<title>&lt;/script&gt;&lt;script&gt;alert(1)&lt;/script&gt;{style}&lt;!-- - terrace report</title>"
        ));
        let (_, json) = page.split_once("id=\"data\">").expect("data");
        let (json, _) = json.split_once("</script>").expect("an end");
        let data: serde_json::Value = serde_json::from_str(json).expect("JSON");
        assert_eq!(data["traces"][0]["tags"][0]["tag"], evil);
    }
}
