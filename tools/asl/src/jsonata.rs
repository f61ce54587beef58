//! Texts of JSONata, in which the states compute what a request needs.

/// Marks an expression as such for Step Functions.
pub(crate) fn query(expression: &str) -> String {
    format!("{{% {expression} %}}")
}

/// Returns the expression of a text.
pub(crate) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// Returns the expression of an object, from names and expressions.
pub(crate) fn object(fields: &[(&str, String)]) -> String {
    let fields: Vec<_> = fields.iter().map(|(name, value)| format!("{}: {value}", literal(name))).collect();
    format!("{{{}}}", fields.join(", "))
}
