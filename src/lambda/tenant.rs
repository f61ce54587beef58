//! The prefix of a tenant's keys, from the context of an invocation.

use lambda_runtime::Context;

/// Returns the prefix for the keys of the tenant that this invocation is for, such as `blue/`. Returns `None` when the
/// invocation has no tenant: the function is not in Lambda's tenant isolation mode.
///
/// A `/` in the tenant id becomes `=2F` and a `=` becomes `=3D`, and the tenants `once` and `wake` are `=6Fnce` and `=77ake`. So two tenants never
/// have the same prefix, no prefix begins another one, and each of them suits
/// [`LockClient::prefixed`](crate::LockClient::prefixed). Without its slash, the prefix can be the value of a session
/// tag, if the tenant id can.
///
/// ```no_run
/// # use lambda_lock::LockClient;
/// # fn example(locks: &LockClient, context: &lambda_runtime::Context) -> Result<(), Box<dyn std::error::Error>> {
/// let prefix = lambda_lock::lambda::tenant_prefix(context).ok_or("invoke this function for a tenant")?;
/// let theirs = locks.prefixed(&prefix)?;
/// # let _ = theirs;
/// # Ok(())
/// # }
/// ```
pub fn tenant_prefix(context: &Context) -> Option<String> {
    let tenant = context.tenant_id.as_deref().filter(|tenant| !tenant.is_empty())?;
    Some(format!("{}/", encoded(tenant)))
}

fn encoded(tenant: &str) -> String {
    match tenant {
        // These parts of a key belong to the records of idempotent work, and to those who sleep until they are woken.
        "once" => "=6Fnce".to_owned(),
        "wake" => "=77ake".to_owned(),
        _ => tenant.replace('=', "=3D").replace('/', "=2F"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn prefix(tenant: &str) -> Option<String> {
        let mut context = Context::default();
        context.tenant_id = Some(tenant.to_owned());
        tenant_prefix(&context)
    }

    /// Reads a tenant id back from its prefix.
    fn tenant_of(prefix: &str) -> Option<String> {
        let mut tenant = String::new();
        let mut rest = prefix.strip_suffix('/')?.chars();
        while let Some(c) = rest.next() {
            match c {
                '/' => return None,
                '=' => {
                    let code: String = rest.by_ref().take(2).collect();
                    tenant.push(u8::from_str_radix(&code, 16).ok()?.into());
                }
                c => tenant.push(c),
            }
        }
        Some(tenant)
    }

    #[test]
    fn a_tenant_id_without_reserved_characters_is_the_prefix_itself() {
        for (tenant, expected) in [
            ("blue", "blue/"),
            ("Blue Corp.+@:_-7", "Blue Corp.+@:_-7/"),
            ("a/b", "a=2Fb/"),
            ("a=2Fb", "a=3D2Fb/"),
            ("once", "=6Fnce/"),
            ("wake", "=77ake/"),
            ("once/", "once=2F/"),
        ] {
            assert_eq!(prefix(tenant).as_deref(), Some(expected), "{tenant}");
        }
    }

    #[test]
    fn an_invocation_without_a_tenant_has_no_prefix() {
        assert_eq!(tenant_prefix(&Context::default()), None);
        assert_eq!(prefix(""), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// As the id can be read back, no two tenants have one prefix. As the only slash is the last character, no
        /// prefix begins another one.
        #[test]
        fn a_tenant_can_be_read_back_from_its_prefix_whose_only_slash_is_its_end(tenant in "([a-c/=026DFonce*]|\\PC){1,12}|once|wake") {
            let prefix = prefix(&tenant).unwrap();

            prop_assert_eq!(prefix.find('/'), Some(prefix.len() - 1));
            prop_assert_eq!(tenant_of(&prefix), Some(tenant));
        }

        #[test]
        fn a_tenant_whose_id_begins_another_one_has_no_key_in_common_with_it(
            tenant in "(a|b|/|=|2F|3D){1,3}", rest in "(a|/|=|=2F|=3D)(a|b|/|=|2F|3D){0,2}",
        ) {
            let (prefix, longer) = (prefix(&tenant).unwrap(), prefix(&format!("{tenant}{rest}")).unwrap());

            prop_assert!(!longer.starts_with(&prefix) && !prefix.starts_with(&longer), "{} {}", prefix, longer);
        }
    }
}
