//! Guests that move to another host while they run, under TLS by the nodes' data certificates.
//!
//! The source's QEMU stops the guest before the last of its state is sent, and says `pre-switchover`. There its mirrors
//! end; until then, and until it was told to go on, whatever fails leaves the guest to the source. From then on QEMU itself
//! decides: the receiver's word that it has everything ends the source's part; without it the guest runs on here.
//!
//! What must be known after a crash of the daemon is in two files of the guest, `incoming.json` on the one side and
//! `sending.json` on the other. Copies whose mirrors were ended count as broken until the guest has gone: they would be
//! if it had to go on here.

use std::{fs, net::IpAddr, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

use super::{
    super::{Destination, GuestSpec, HypervisorError, Moves},
    Qemu,
    argv::Begin,
    ask, file_error,
    files::GuestFiles,
    guest::Guest,
    record::{keep, kept},
    snapshot, status,
};
use crate::{
    cancel::Cancel,
    progress::{Progress, Tell, copied},
    qmp::Qmp,
    tail::tail,
};

/// Between two looks at a state that is on its way: short for a guest that stands still meanwhile.
const LOOK_PERIOD: Duration = Duration::from_millis(50);
/// Between two reports of progress.
const TELL_PERIOD: Duration = Duration::from_millis(500);
/// A guest that is to be resumed may still be on its way for so long: its source has sent everything by then.
const ARRIVAL_LIMIT: Duration = Duration::from_secs(10);
/// A sender of which no byte gets through for so long fails: the network is gone, or the receiver hangs.
const SILENCE_LIMIT: Duration = Duration::from_secs(30);
/// The last of the state is what the guest changed within some tenths of a second, so long may it take.
const FINISH_LIMIT: Duration = Duration::from_secs(60);
/// How long QEMU may take to give up sending; half of it is for doing so by itself.
const CANCEL_LIMIT: Duration = Duration::from_secs(10);
/// A guest that changes its memory faster than the network carries it is slowed down, more and more; one that is not
/// ready after so many rounds never will be.
const ROUNDS_MAX: u64 = 500;

/// The objects' names within QEMU.
const CREDENTIALS_IN: &str = "move-in";
const CREDENTIALS_OUT: &str = "move-out";
const PEERS: &str = "move-peers";

/// A guest that awaits the state of another, or has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Incoming {
    /// Who may send it.
    peer: String,
}

/// A guest that is sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Sending {
    peer: String,
    address: IpAddr,
    port: u16,
    /// It computed before.
    ran: bool,
    /// The copies that were the same as its disks when their mirrors ended.
    ended: Option<Vec<Uuid>>,
    /// The receiver has it.
    gone: bool,
}

impl Sending {
    fn is_to(&self, to: &Destination) -> bool {
        (&self.peer, self.address, self.port) == (&to.peer, to.address, to.port)
    }

    fn keep(&self, files: &GuestFiles) -> Result<(), HypervisorError> {
        keep(&files.sending, self).map_err(|source| file_error("write", &files.sending, source))
    }

    fn kept(files: &GuestFiles) -> Result<Option<Self>, HypervisorError> {
        kept(&files.sending).map_err(|source| file_error("read", &files.sending, source))
    }

    fn forget(files: &GuestFiles) -> Result<(), HypervisorError> {
        super::gone(fs::remove_file(&files.sending))
            .map_err(|source| file_error("remove", &files.sending, source))
    }
}

/// How far a migration is, by QEMU's words for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nothing is sent.
    None,
    /// The guest computes and is sent.
    Going,
    /// The guest is stopped, and all but the last of it was sent.
    Ready,
    /// The last of it is sent.
    Leaving,
    /// It was given up, or it failed.
    Over,
    /// The receiver has it.
    Completed,
}

/// A migration as QEMU tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Migration {
    stage: Stage,
    sent: u64,
    remaining: u64,
    total: u64,
    rounds: u64,
    words: String,
}

impl Migration {
    fn parse(value: &Value) -> Self {
        let stage = match value.get("status").and_then(Value::as_str) {
            None | Some("none") => Stage::None,
            Some("setup" | "active" | "wait-unplug") => Stage::Going,
            Some("pre-switchover") => Stage::Ready,
            Some("completed") => Stage::Completed,
            Some("failed" | "cancelled") => Stage::Over,
            // Also while it is being given up: that is over soon.
            Some(_) => Stage::Leaving,
        };
        let ram = |name: &str| value["ram"][name].as_u64().unwrap_or_default();
        let words = value.get("error-desc").and_then(Value::as_str).unwrap_or("QEMU does not say why");
        let (sent, remaining, total) = (ram("transferred"), ram("remaining"), ram("total"));
        Migration { stage, sent, remaining, total, rounds: ram("dirty-sync-count"), words: words.to_owned() }
    }

    async fn look(guest: &Guest, client: &Qmp) -> Result<Self, HypervisorError> {
        let mut migration = Self::parse(&ask(guest, client, "query-migrate", Value::Null).await?);
        // A guest that arrived here says so for as long as it is not sent on.
        let is_sent = |status: &str| matches!(status, "finish-migrate" | "postmigrate");
        if migration.stage == Stage::Completed && !is_sent(&status(guest, client).await?) {
            migration.stage = Stage::None;
        }
        Ok(migration)
    }
}

fn refused(guest: &Guest, why: impl Into<String>) -> HypervisorError {
    HypervisorError::Move { instance: guest.record.instance, why: why.into() }
}

/// Makes a guest compute that was started paused or has arrived.
pub(super) async fn resume(guest: &Guest) -> Result<(), HypervisorError> {
    let client = Qemu::control(guest).await?;
    let deadline = Instant::now() + ARRIVAL_LIMIT;
    loop {
        match status(guest, &client).await?.as_str() {
            "running" => break,
            "inmigrate" if guest.has_ended() => {}
            // Told to go on now it would compute as soon as it is there, whatever became of this call.
            "inmigrate" if Instant::now() < deadline => sleep(LOOK_PERIOD).await,
            "inmigrate" => {
                let seconds = ARRIVAL_LIMIT.as_secs();
                return Err(refused(guest, format!("its state has not arrived within {seconds} s")));
            }
            "finish-migrate" | "postmigrate" => {
                return Err(refused(guest, "it is being sent to another node"));
            }
            _ => {
                ask(guest, &client, "cont", Value::Null).await?;
                break;
            }
        }
    }
    super::gone(fs::remove_file(&guest.files.incoming))
        .map_err(|source| file_error("remove", &guest.files.incoming, source))
}

impl Qemu {
    /// Makes credentials out of the node's certificate as it is now.
    async fn make_credentials(
        &self,
        guest: &Guest,
        client: &Qmp,
        id: &str,
        end: &str,
    ) -> Result<(), HypervisorError> {
        // The link is resolved once: QEMU reads one file after the other, and a renewal must not come in between.
        let dir = fs::canonicalize(&self.certificates);
        let dir =
            dir.map_err(|source| file_error("find the data certificate", &self.certificates, source))?;
        renew_object(
            guest,
            client,
            json!({ "qom-type": "tls-creds-x509", "id": id, "dir": dir, "endpoint": end, "verify-peer": true }),
        )
        .await
    }

    /// The port at which a guest already awaits this peer.
    async fn awaits(guest: &Guest, peer: &str) -> Result<Option<u16>, HypervisorError> {
        let files = &guest.files;
        let known: Option<Incoming> =
            kept(&files.incoming).map_err(|source| file_error("read", &files.incoming, source))?;
        let Some(known) = known else {
            return match guest.has_ended() {
                true => Ok(None),
                false => Err(refused(guest, "it is up on this node already")),
            };
        };
        if guest.has_ended() || known.peer != peer {
            return Ok(None);
        }
        let client = Self::control(guest).await?;
        if status(guest, &client).await? != "inmigrate" {
            return Ok(None);
        }
        Ok(port(&ask(guest, &client, "query-migrate", Value::Null).await?))
    }

    async fn receive_here(
        &self,
        spec: &GuestSpec,
        peer: &str,
        listen: IpAddr,
        cancel: &Cancel,
    ) -> Result<u16, HypervisorError> {
        if let Some(guest) = self.guest(spec.instance) {
            if let Some(port) = Self::awaits(&guest, peer).await? {
                return Ok(port);
            }
            self.end(&guest).await?;
        }
        let files = self.files(spec.instance);
        fs::create_dir_all(&files.folder).map_err(|source| file_error("make", &files.folder, source))?;
        // Before there is a process: a later daemon must not take it for a guest that computes.
        keep(&files.incoming, &Incoming { peer: peer.to_owned() })
            .map_err(|source| file_error("write", &files.incoming, source))?;
        self.launch_or_none(spec, Begin::Incoming, cancel).await?;
        let guest = self.guest(spec.instance).ok_or(HypervisorError::NotRunning(spec.instance))?;
        let listening = self.listen(&guest, peer, listen).await;
        if listening.is_err() {
            self.end(&guest).await?;
        }
        listening
    }

    async fn listen(&self, guest: &Guest, peer: &str, listen: IpAddr) -> Result<u16, HypervisorError> {
        let client = Self::control(guest).await?;
        self.make_credentials(guest, &client, CREDENTIALS_IN, "server").await?;
        let rule = json!({ "match": format!("CN={peer}"), "policy": "allow", "format": "exact" });
        let peers = json!({ "qom-type": "authz-list", "id": PEERS, "policy": "deny", "rules": [rule] });
        renew_object(guest, &client, peers).await?;
        set_capabilities(guest, &client).await?;
        let parameters = json!({ "tls-creds": CREDENTIALS_IN, "tls-authz": PEERS });
        ask(guest, &client, "migrate-set-parameters", parameters).await?;
        // The kernel chooses a free port.
        let uri = json!({ "uri": uri(listen, 0) });
        ask(guest, &client, "migrate-incoming", uri).await?;
        let told = ask(guest, &client, "query-migrate", Value::Null).await?;
        port(&told).ok_or_else(|| refused(guest, format!("QEMU does not say where it listens: {told}")))
    }

    /// Begins to send a guest.
    async fn begin(&self, guest: &Guest, client: &Qmp, to: &Destination) -> Result<(), HypervisorError> {
        let disks = snapshot::disks(guest, client).await?.len();
        let jobs = ask(guest, client, "query-block-jobs", Value::Null).await?;
        let is_ready = |job: &&Value| job["type"] == "mirror" && job["ready"] == true;
        let ready = jobs.as_array().into_iter().flatten().filter(is_ready).count();
        if ready < disks {
            let why = format!("{ready} of its {disks} disks have a mirror in sync");
            return Err(refused(guest, why));
        }
        let ran = status(guest, client).await? == "running";
        let Destination { peer, address, port } = to.clone();
        Sending { peer, address, port, ran, ended: None, gone: false }.keep(&guest.files)?;
        self.make_credentials(guest, client, CREDENTIALS_OUT, "client").await?;
        set_capabilities(guest, client).await?;
        // It converges, at the price of a slow guest.
        let converge = json!({ "capabilities": [{ "capability": "auto-converge", "state": true }] });
        ask(guest, client, "migrate-set-capabilities", converge).await?;
        let parameters = json!({ "tls-creds": CREDENTIALS_OUT, "tls-hostname": to.peer });
        ask(guest, client, "migrate-set-parameters", parameters).await?;
        ask(guest, client, "migrate", json!({ "uri": uri(to.address, to.port) })).await.map(drop)
    }

    async fn send_away(
        &self,
        guest: &Guest,
        to: &Destination,
        tell: Tell<'_>,
    ) -> Result<(), HypervisorError> {
        let client = Self::control(guest).await?;
        let known = Sending::kept(&guest.files)?.filter(|known| known.is_to(to));
        match Migration::look(guest, &client).await?.stage {
            Stage::Going | Stage::Ready if known.is_some() => {}
            Stage::Leaving | Stage::Completed => return Err(refused(guest, "it has been sent already")),
            Stage::Going | Stage::Ready => {
                give_up(guest, &client).await?;
                self.begin(guest, &client, to).await?;
            }
            Stage::None | Stage::Over => self.begin(guest, &client, to).await?,
        }
        follow(guest, &client, tell).await?;
        let Some(sending) = Sending::kept(&guest.files)? else {
            return Err(refused(guest, "what is known of its way is lost"));
        };
        if sending.ended.is_some() {
            return Ok(());
        }
        tell(Progress { text: "the guest is stopped, its mirrors end".to_owned(), percent: Some(100) });
        let disks = snapshot::disks(guest, &client).await?.len();
        let ended = if disks == 0 { Vec::new() } else { self.end_mirrors_of(guest).await? };
        if ended.len() < disks {
            return Err(refused(guest, format!("{} of its {disks} disks had a mirror in sync", ended.len())));
        }
        Sending { ended: Some(ended), ..sending }.keep(&guest.files)
    }

    async fn finish_here(&self, guest: &Guest) -> Result<(), HypervisorError> {
        let known = Sending::kept(&guest.files)?;
        let is_gone = known.as_ref().is_some_and(|known| known.gone);
        let Some(sending) = known.filter(|known| known.ended.is_some() && (known.gone || !guest.has_ended()))
        else {
            return Err(refused(guest, "its state was not sent, or its QEMU has ended before all of it was"));
        };
        if !is_gone {
            let client = Self::control(guest).await?;
            complete(guest, &client).await?;
            Sending { gone: true, ..sending.clone() }.keep(&guest.files)?;
        }
        Self::force(guest).await?;
        let instance = guest.record.instance;
        self.trust_copies(instance, &sending.ended.unwrap_or_default(), &[])?;
        self.forget(instance)
    }

    /// Runs a part that gives up when it is told to.
    fn until_told<T>(
        &self,
        instance: Uuid,
        cancel: &Cancel,
        part: impl Future<Output = Result<T, HypervisorError>>,
    ) -> Result<T, HypervisorError> {
        self.runtime.block_on(async {
            tokio::select! {
                done = part => done,
                () = cancel.told() => Err(HypervisorError::Cancelled(instance)),
            }
        })
    }

    fn guest_up(&self, instance: Uuid) -> Result<Arc<Guest>, HypervisorError> {
        let guest = self.guest(instance).filter(|guest| !guest.has_ended());
        guest.ok_or(HypervisorError::NotRunning(instance))
    }
}

/// Waits until all but the last of a guest was sent.
async fn follow(guest: &Guest, client: &Qmp, tell: Tell<'_>) -> Result<(), HypervisorError> {
    let begun = Instant::now();
    let (mut sent_before, mut heard, mut told) = (0, begun, None::<Instant>);
    loop {
        let now = Migration::look(guest, client).await?;
        match now.stage {
            Stage::Ready => return Ok(()),
            Stage::Going => {}
            Stage::Over => return Err(refused(guest, format!("sending has failed: {}", now.words))),
            Stage::None | Stage::Leaving | Stage::Completed => {
                return Err(refused(guest, "somebody else has ended or finished its way"));
            }
        }
        if now.sent != sent_before {
            (sent_before, heard) = (now.sent, Instant::now());
        }
        if heard.elapsed() > SILENCE_LIMIT {
            let seconds = SILENCE_LIMIT.as_secs();
            return Err(refused(guest, format!("nothing of its state gets through within {seconds} s")));
        }
        if now.rounds > ROUNDS_MAX {
            return Err(refused(guest, "it changes its memory faster than the network carries it"));
        }
        if told.is_none_or(|told| told.elapsed() > TELL_PERIOD) {
            told = Some(Instant::now());
            let seconds = begun.elapsed().as_secs().max(1);
            tell(copied(now.total.saturating_sub(now.remaining), now.total, now.sent / seconds));
        }
        sleep(LOOK_PERIOD).await;
    }
}

/// Has the last of a guest sent, and waits until the receiver has it.
async fn complete(guest: &Guest, client: &Qmp) -> Result<(), HypervisorError> {
    let deadline = Instant::now() + FINISH_LIMIT;
    let mut told = false;
    loop {
        let now = Migration::look(guest, client).await?;
        match now.stage {
            Stage::Completed => return Ok(()),
            Stage::Ready if !told => {
                told = true;
                let state = json!({ "state": "pre-switchover" });
                ask(guest, client, "migrate-continue", state).await?;
            }
            Stage::Ready | Stage::Leaving if Instant::now() < deadline => sleep(LOOK_PERIOD).await,
            Stage::Ready | Stage::Leaving => {
                // Cut off it fails, and the guest goes on here, unless the receiver has said that it has everything.
                cut(client).await;
                let seconds = FINISH_LIMIT.as_secs();
                return Err(refused(
                    guest,
                    format!("the receiver does not say within {seconds} s that it has it"),
                ));
            }
            Stage::Over => {
                return Err(refused(guest, format!("it runs on here, as sending has failed: {}", now.words)));
            }
            Stage::None | Stage::Going => return Err(refused(guest, "its state was not sent")),
        }
    }
}

/// Cuts a migration's connection, also one that hangs.
async fn cut(client: &Qmp) {
    let instances = json!({ "instances": [{ "type": "migration" }] });
    if let Err(error) = client.execute_out_of_band("yank", instances).await {
        tracing::debug!(%error, "a migration has no connection to cut");
    }
}

/// Gives up sending; the guest goes on here.
async fn give_up(guest: &Guest, client: &Qmp) -> Result<(), HypervisorError> {
    let instance = guest.record.instance;
    let known = Sending::kept(&guest.files)?;
    let over = async {
        loop {
            match Migration::look(guest, client).await?.stage {
                Stage::None | Stage::Over => return Ok(()),
                Stage::Completed => return Err(refused(guest, "the other node has it")),
                Stage::Going | Stage::Ready | Stage::Leaving => sleep(LOOK_PERIOD).await,
            }
        }
    };
    tokio::pin!(over);
    if Migration::look(guest, client).await?.stage != Stage::None {
        ask(guest, client, "migrate_cancel", Value::Null).await?;
    }
    let given_up = match timeout(CANCEL_LIMIT / 2, &mut over).await {
        Ok(given_up) => given_up,
        Err(_) => {
            cut(client).await;
            let silent =
                |_| HypervisorError::Control { instance, words: "it does not give up sending".to_owned() };
            timeout(CANCEL_LIMIT / 2, over).await.map_err(silent)?
        }
    };
    given_up?;
    // Mostly it goes on by itself.
    if known.is_some_and(|known| known.ran) && status(guest, client).await? != "running" {
        ask(guest, client, "cont", Value::Null).await?;
    }
    Sending::forget(&guest.files)
}

/// Puts an object in the place of one that an earlier try has made.
async fn renew_object(guest: &Guest, client: &Qmp, object: Value) -> Result<(), HypervisorError> {
    let _none_is_fine = client.execute("object-del", json!({ "id": object["id"] })).await;
    ask(guest, client, "object-add", object).await.map(drop)
}

/// What both sides must agree on: a stop before the last part, and the receiver's word at the end.
async fn set_capabilities(guest: &Guest, client: &Qmp) -> Result<(), HypervisorError> {
    let on = |name: &str| json!({ "capability": name, "state": true });
    let capabilities = [on("events"), on("pause-before-switchover"), on("return-path")];
    ask(guest, client, "migrate-set-capabilities", json!({ "capabilities": capabilities })).await.map(drop)
}

fn uri(address: IpAddr, port: u16) -> String {
    format!("tcp:{}", std::net::SocketAddr::new(address, port))
}

/// Where an incoming migration listens.
fn port(migration: &Value) -> Option<u16> {
    let port = &migration["socket-address"][0]["port"];
    port.as_str()?.parse().ok().filter(|port| *port != 0)
}

impl Moves for Qemu {
    fn receive(
        &self,
        spec: &GuestSpec,
        peer: &str,
        listen: IpAddr,
        cancel: &Cancel,
    ) -> Result<u16, HypervisorError> {
        // Cancelled in its middle it leaves no guest: it waits for nothing but the start, which is.
        self.runtime.block_on(self.receive_here(spec, peer, listen, cancel))
    }

    fn send(
        &self,
        instance: Uuid,
        to: &Destination,
        tell: Tell<'_>,
        cancel: &Cancel,
    ) -> Result<(), HypervisorError> {
        let guest = self.guest_up(instance)?;
        let sent = self.until_told(instance, cancel, self.send_away(&guest, to, tell));
        if sent.is_err() && !guest.has_ended() {
            let keeping =
                self.runtime.block_on(async { give_up(&guest, &*Self::control(&guest).await?).await });
            if let Err(error) = keeping {
                tracing::warn!(guest = %instance, %error, "a guest that can't be sent may be left stopped");
            }
        }
        sent.map_err(|error| match guest.has_ended() {
            true => refused(&guest, format!("its QEMU has ended: {}", tail(&guest.files.log))),
            false => error,
        })
    }

    fn finish(&self, instance: Uuid, _cancel: &Cancel) -> Result<(), HypervisorError> {
        let Some(guest) = self.guest(instance) else { return Ok(()) };
        // Once it is told to go nothing may break it off: it has limits of its own.
        self.runtime.block_on(self.finish_here(&guest))
    }

    fn cancel(&self, instance: Uuid, cancel: &Cancel) -> Result<(), HypervisorError> {
        let Some(guest) = self.guest(instance).filter(|guest| !guest.has_ended()) else { return Ok(()) };
        self.until_told(instance, cancel, async { give_up(&guest, &*Self::control(&guest).await?).await })
    }

    fn snapshot(
        &self,
        instance: Uuid,
        disks: &[(Uuid, Uuid)],
        tell: Tell<'_>,
        cancel: &Cancel,
    ) -> Result<(), HypervisorError> {
        let guest = self.guest_up(instance)?;
        let filled = self.until_told(instance, cancel, self.fill(&guest, disks, tell));
        // However it ended, nothing of it may stay in the guest.
        let cleared =
            self.runtime.block_on(async { snapshot::clear(&guest, &*Self::control(&guest).await?).await });
        filled.and(cleared)?;
        self.sync_filled(instance, disks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_migration_is_read_as_qemu_tells_it() {
        let stages = [
            (json!({}), Stage::None),
            (json!({ "status": "none" }), Stage::None),
            (json!({ "status": "setup" }), Stage::Going),
            (json!({ "status": "active" }), Stage::Going),
            (json!({ "status": "pre-switchover" }), Stage::Ready),
            (json!({ "status": "device" }), Stage::Leaving),
            (json!({ "status": "cancelling" }), Stage::Leaving),
            (json!({ "status": "cancelled" }), Stage::Over),
            (json!({ "status": "failed" }), Stage::Over),
            (json!({ "status": "completed" }), Stage::Completed),
        ];
        for (told, expected) in stages {
            assert_eq!(Migration::parse(&told).stage, expected, "{told}");
        }
        let told = json!({
            "status": "active", "error-desc": "no route",
            "ram": { "transferred": 7, "remaining": 3, "total": 9, "dirty-sync-count": 2 },
        });
        let expected = Migration {
            stage: Stage::Going,
            sent: 7,
            remaining: 3,
            total: 9,
            rounds: 2,
            words: "no route".to_owned(),
        };
        assert_eq!(Migration::parse(&told), expected);
    }

    #[test]
    fn where_it_listens() {
        let at =
            |port: &str| json!({ "socket-address": [{ "port": port, "host": "127.0.0.1", "type": "inet" }] });
        assert_eq!(port(&at("35557")), Some(35557));
        assert_eq!(port(&at("0")), None);
        assert_eq!(port(&json!({})), None);
        assert_eq!(uri("127.0.0.1".parse().unwrap(), 9), "tcp:127.0.0.1:9");
        assert_eq!(uri("fd00::1".parse().unwrap(), 9), "tcp:[fd00::1]:9");
    }
}
