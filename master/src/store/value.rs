//! Values: JSON text with a version of its own, so that a record says by itself how it is to be read.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// The version that is written.
pub const VALUE_VERSION: u32 = 1;

/// Why a value can't be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ValueError {
    /// The text isn't what this version writes.
    #[error("record {key} can't be read")]
    Malformed {
        /// The record.
        key: String,
        /// The cause.
        #[source]
        source: serde_json::Error,
    },
    /// Written by a newer version.
    #[error("record {key} has version {found}; this program reads versions up to {VALUE_VERSION}")]
    Newer {
        /// The record.
        key: String,
        /// Its version.
        found: u32,
    },
}

#[derive(Serialize)]
struct Written<'a, T> {
    version: u32,
    data: &'a T,
}

#[derive(Deserialize)]
struct Version {
    version: u32,
}

#[derive(Deserialize)]
struct Read<T> {
    data: T,
}

/// A value as it is stored.
pub fn encode<T: Serialize>(data: &T) -> String {
    let written = Written { version: VALUE_VERSION, data };
    serde_json::to_string(&written).expect("records are plain data whose maps have keys that are text")
}

/// Reads a value; the key is for the error.
pub fn decode<T: DeserializeOwned>(key: &str, text: &str) -> Result<T, ValueError> {
    let malformed = |source| ValueError::Malformed { key: key.to_owned(), source };
    // The version first: a newer version's data may look like anything.
    let Version { version: found } = serde_json::from_str(text).map_err(malformed)?;
    if found > VALUE_VERSION {
        return Err(ValueError::Newer { key: key.to_owned(), found });
    }
    let Read { data } = serde_json::from_str(text).map_err(malformed)?;
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_carries_its_version() {
        assert_eq!(encode(&7), r#"{"version":1,"data":7}"#);
        assert_eq!(decode::<u64>("epoch", &encode(&7)).unwrap(), 7);
        let newer = decode::<u64>("epoch", r#"{"version":2,"data":[7]}"#).unwrap_err();
        assert_eq!(newer.to_string(), "record epoch has version 2; this program reads versions up to 1");
        assert!(matches!(decode::<u64>("epoch", "7").unwrap_err(), ValueError::Malformed { .. }));
    }
}
