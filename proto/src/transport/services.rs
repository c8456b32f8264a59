//! The services that every daemon has: health, and reflection in both versions that clients ask for.
use tonic::service::Routes;
use tonic_health::server::HealthReporter;

/// Why the common services could not be made.
#[derive(Debug, thiserror::Error)]
#[error("the compiled descriptors can't be used for reflection")]
pub struct ReflectionError(#[from] tonic_reflection::server::Error);

/// Routes with health (serving) and reflection v1 and v1alpha, to which a daemon adds its own services, and the
/// handle by which it changes its health.
pub fn common_services() -> Result<(Routes, HealthReporter), ReflectionError> {
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(crate::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let (reporter, health) = tonic_health::server::health_reporter();
    let routes =
        Routes::new(health).add_service(reflection().build_v1()?).add_service(reflection().build_v1alpha()?);
    Ok((routes, reporter))
}
