//! What differs between a rule as it stands and as it would.

use serde_json::Value;

/// One member that differs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Difference {
    /// Where, such as `calendar.unit`.
    pub(crate) path: String,
    /// What stands there; absent: nothing.
    pub(crate) before: Option<Value>,
    /// What would; absent: nothing.
    pub(crate) after: Option<Value>,
}

/// The members in which two rules differ, by their paths. Lists are compared whole: their members have no names.
pub(crate) fn differences(before: &Value, after: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    walk(String::new(), Some(before), Some(after), &mut found);
    found
}

fn walk(path: String, before: Option<&Value>, after: Option<&Value>, found: &mut Vec<Difference>) {
    let before = before.filter(|value| !value.is_null());
    let after = after.filter(|value| !value.is_null());
    if before == after {
        return;
    }
    if let (Some(Value::Object(old)), Some(Value::Object(new))) = (before, after) {
        let names: std::collections::BTreeSet<_> = old.keys().chain(new.keys()).collect();
        for name in names {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            walk(path, old.get(name), new.get(name), found);
        }
        return;
    }
    found.push(Difference { path, before: before.cloned(), after: after.cloned() });
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_differs_is_told_with_its_path() {
        let before = json!({ "limit": 1, "calendar": { "unit": "day", "timeZone": "UTC" }, "hosts": ["a"], "gone": 1 });
        let after =
            json!({ "limit": 1, "calendar": { "unit": "week", "timeZone": "UTC" }, "hosts": ["a", "b"], "gone": null });
        let told = differences(&before, &after);
        let paths: Vec<_> = told.iter().map(|difference| difference.path.as_str()).collect();
        assert_eq!(paths, ["calendar.unit", "gone", "hosts"]);
        assert_eq!(told[1].after, None);
        assert_eq!(differences(&after, &after), []);
    }
}
