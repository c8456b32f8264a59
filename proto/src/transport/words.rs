//! Puts TLS errors into words that an operator can act on.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "enums of rustls, which may grow; what is not named is shown as it is"
)]
use std::{error::Error, io};

use rustls::{AlertDescription, CertificateError};

/// Why TLS failed, in words.
pub(crate) fn tls_reason(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(reason) => certificate_reason(reason),
        rustls::Error::AlertReceived(alert) => alert_reason(*alert),
        rustls::Error::InvalidMessage(_) => "the other side does not speak TLS".to_owned(),
        rustls::Error::NoApplicationProtocol => "the other side does not speak HTTP/2".to_owned(),
        other => other.to_string(),
    }
}

/// The TLS error inside an I/O error, in words.
pub(crate) fn tls_reason_in(error: &io::Error) -> Option<String> {
    let inner: &(dyn Error + 'static) = error.get_ref()?;
    inner.downcast_ref::<rustls::Error>().map(tls_reason)
}

fn certificate_reason(reason: &CertificateError) -> String {
    use CertificateError as Reason;
    match reason {
        Reason::Expired | Reason::ExpiredContext { .. } => "certificate expired".to_owned(),
        Reason::NotValidYet | Reason::NotValidYetContext { .. } => {
            "certificate not yet valid (is a clock wrong?)".to_owned()
        }
        // Each CA's name holds its cluster's uuid.
        Reason::UnknownIssuer => "certificate issued by another cluster's CA".to_owned(),
        Reason::BadSignature => "certificate or handshake with a wrong signature".to_owned(),
        Reason::Other(inner) => inner.0.to_string(),
        other => other.to_string(),
    }
}

/// TLS 1.3 gives a refused certificate's holder one number; this is what the number can mean here.
fn alert_reason(alert: AlertDescription) -> String {
    let refused = match alert {
        AlertDescription::CertificateExpired => "it is expired or not yet valid",
        AlertDescription::CertificateRevoked => "it is revoked",
        AlertDescription::UnknownCA => "it was issued by another cluster's CA",
        AlertDescription::CertificateUnknown | AlertDescription::AccessDenied => {
            "it stands for somebody else than was expected"
        }
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::DecryptError => "it is damaged or not meant for this use",
        AlertDescription::CertificateRequired => return "the other side wants a certificate".to_owned(),
        AlertDescription::ProtocolVersion => return "the other side does not speak TLS 1.3".to_owned(),
        AlertDescription::NoApplicationProtocol => return "the other side does not speak HTTP/2".to_owned(),
        other => return format!("the other side ended the handshake: {other:?}"),
    };
    format!("the other side refused this side's certificate: {refused}")
}
