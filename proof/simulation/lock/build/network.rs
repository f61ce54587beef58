//! Puts a simulated network under the client. The network itself is in `src/simulation.rs` of this package.

use lambda_lock_copy::Edit;

const NAME: &str = "the simulated network";

pub(crate) const EDITS: &[Edit] = &[
    Edit {
        name: NAME,
        file: "client/builder.rs",
        find: "
            clock: Option<Arc<dyn Clock>>,
        }
        ",
        put: "
            clock: Option<Arc<dyn Clock>>,
            pub(crate) network: Option<crate::simulation::Plugged>,
        }
        ",
    },
    Edit { name: NAME, file: "client/builder.rs", find: "clock: None,", put: "clock: None, network: None," },
    Edit {
        name: NAME,
        file: "client/builder.rs",
        find: "transport: Arc::new(DynamoDb::new(own_config, self.table.clone(), settings.schema.clone())),",
        put: "
            transport: match self.network {
                Some(network) => Arc::new(network),
                None => Arc::new(DynamoDb::new(own_config, self.table.clone(), settings.schema.clone())),
            },
        ",
    },
];
