//! Instances, and what of them is drained: drain one, or all of a data centre, and undo it.
//!
//! A drain is an operation, as a gate is. The instances read it in the store and leave the group; nothing is sent to them.

use axum::Json;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::config::Role;
use crate::model::{Change, DrainPlace, Drains, Operation};
use crate::runtime::gates::Author;
use crate::store::Instance;
use crate::wire::time::format_time;

use super::body::Body;
use super::gates::text;
use super::params::NoParams;
use super::problem::Problem;
use super::tasks::read;
use super::{Answer, App, hop};

/// What is to be drained. Exactly one of `instance` and `dc`.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct DrainBody {
    /// The name of an instance.
    instance: Option<String>,
    /// The name of a data centre: all its instances, those that start later too.
    dc: Option<String>,
    /// Even if no instance is left to run the shards; for admins.
    force: bool,
    /// Who drains it; with tokens it stands in brackets behind the name of the token.
    by: Option<String>,
    /// Why.
    reason: Option<String>,
}

/// What is to be drained no more. Exactly one of `instance` and `dc`.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct UndrainBody {
    /// The name of an instance.
    instance: Option<String>,
    /// The name of a data centre.
    dc: Option<String>,
    /// Who undoes it.
    by: Option<String>,
    /// Why.
    reason: Option<String>,
}

/// What is drained, since when, by whom and why.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(super) struct DrainView {
    /// instance, dc.
    pub(super) target: String,
    /// The name of the instance or data centre.
    pub(super) of: String,
    /// Since when.
    pub(super) since: String,
    /// Who drained it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) by: Option<String>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    /// The operation that drained it.
    pub(super) operation: u64,
}

/// A drain, and whom it concerns.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(super) struct DrainedView {
    /// What is drained.
    #[serde(flatten)]
    drain: DrainView,
    /// Whether it is drained now.
    drained: bool,
    /// The instances in it that are alive; none: what comes back there comes back drained.
    instances: Vec<String>,
    /// Instances in it with a heartbeat in the last hour that another drain holds for as well: undoing this one leaves them
    /// drained.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    also_drained: Vec<AlsoDrained>,
}

/// An instance, and another drain that holds for it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(super) struct AlsoDrained {
    /// The name of the instance.
    instance: String,
    /// The other drain.
    drain: DrainView,
}

/// An instance.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(super) struct InstanceView {
    /// Its name.
    name: String,
    /// Its data centre.
    dc: String,
    /// Its address.
    advertise: String,
    /// Its version.
    version: String,
    /// When it started.
    started_at: String,
    /// Its last heartbeat.
    seen_at: String,
    /// Whether the last heartbeat is less than 20 seconds old.
    alive: bool,
    /// The drain for which it runs no shard; absent when it is not drained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    drained: Option<DrainView>,
}

/// The instances.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(super) struct InstancePage {
    /// Those with a heartbeat in the last hour.
    instances: Vec<InstanceView>,
    /// All that is drained, whether an instance of it was seen or not.
    drains: Vec<DrainView>,
}

/// Every instance with a heartbeat in the last hour, and what is drained.
#[utoipa::path(get, path = "/v1/instances", responses((status = 200, body = InstancePage)))]
pub(super) async fn instances(app: App, _: NoParams) -> Answer<Json<InstancePage>> {
    let instances = app.node.store().instances().await?;
    let drains = drains(&app).await?;
    let shown = |one: Instance| InstanceView {
        alive: hop::alive(&app, &one),
        drained: drains.of(&one.name, &one.dc).map(|(place, operation)| view(place, operation)),
        name: one.name,
        dc: one.dc,
        advertise: one.advertise,
        version: one.version,
        started_at: format_time(one.started_at),
        seen_at: format_time(one.seen_at),
    };
    Ok(Json(InstancePage {
        instances: instances.into_iter().map(shown).collect(),
        drains: drains.iter().map(|(place, operation)| view(place, operation)).collect(),
    }))
}

/// Drain an instance, or all of a data centre: within two seconds it begins to give its shards to the others in good order, and
/// takes none until that is undone, over restarts too. It is durable when this answers; `/v1/shards` says who has what. What is
/// drained already is answered as it is. Nobody of it has to be alive: it keeps out who comes back.
#[utoipa::path(post, path = "/v1/instances:drain", request_body = DrainBody, responses(
    (status = 200, body = DrainedView), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn drain(app: App, _: NoParams, Body(body): Body) -> Answer<Json<DrainedView>> {
    let wanted: DrainBody = read(&body)?;
    let place = place(wanted.instance, wanted.dc)?;
    app.caller.note.about(told(&place, wanted.force));
    let author = app.caller.author(wanted.by, wanted.reason)?;
    if wanted.force {
        app.caller.expect(Role::Admin, "A drain by force")?;
    }
    expect_servers(&app)?;
    let known = app.node.store().instances().await?;
    let before = drains(&app).await?.get(&place).cloned();
    let operation = match before {
        Some(before) => before,
        None => {
            expect_known(&place, &known)?;
            let alive = known.iter().filter(|one| hop::alive(&app, one)).cloned().collect();
            begin(&app, &place, author, alive, wanted.force).await?
        }
    };
    let after = drains(&app).await?;
    Ok(Json(drained_view(&place, &operation, &known, &after, |one| hop::alive(&app, one))))
}

/// Undo a drain: its instances join the group again within two seconds, and are given shards, but for those that another drain
/// holds for as well (`also_drained`).
#[utoipa::path(post, path = "/v1/instances:undrain", request_body = UndrainBody, responses(
    (status = 200, body = DrainedView), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn undrain(app: App, _: NoParams, Body(body): Body) -> Answer<Json<DrainedView>> {
    let wanted: UndrainBody = read(&body)?;
    let place = place(wanted.instance, wanted.dc)?;
    app.caller.note.about(told(&place, false));
    let author = app.caller.author(wanted.by, wanted.reason)?;
    let known = app.node.store().instances().await?;
    let before = drains(&app).await?;
    let Some(operation) = before.get(&place) else { return Err(not_drained(&place, &before, &known)) };
    let now = app.node.service().clock().now().wall;
    app.node.service().gates().change(now, author, Change::Undrained(place.clone())).await?;
    let after = drains(&app).await?;
    Ok(Json(drained_view(&place, operation, &known, &after, |one| hop::alive(&app, one))))
}

/// Puts a drain on record, unless it leaves nobody: of two at once that would together, one is refused.
async fn begin(
    app: &App,
    place: &DrainPlace,
    author: Author,
    alive: Vec<Instance>,
    force: bool,
) -> Answer<Operation> {
    let leaves_some = |drains: &Drains| {
        let is_left =
            |one: &Instance| !place.has(&one.name, &one.dc) && drains.of(&one.name, &one.dc).is_none();
        force || alive.iter().any(is_left)
    };
    let now = app.node.service().clock().now().wall;
    let change = Change::Drained(place.clone());
    let begun = app.node.service().gates().change_if(now, author, change, &leaves_some).await?;
    begun.ok_or_else(|| {
        let detail = format!(
            "No instance would be left to run the shards: all that are alive are in {place} or drained already. \
             Start another or undo a drain first; an admin can drain it all the same with force."
        );
        Problem::conflict("nobody_left", detail)
    })
}

/// What is drained, read anew.
async fn drains(app: &App) -> Answer<Drains> {
    let gates = app.node.service().gates();
    gates.read().await?;
    Ok(gates.drains().clone())
}

fn expect_servers(app: &App) -> Answer<()> {
    if app.node.embedded_log().is_none() {
        return Ok(());
    }
    let detail =
        "This installation is embedded: its one instance is all there is, and nobody could take its shards.";
    Err(Problem::conflict("embedded", detail.to_owned()))
}

/// An instance of the place has to have been seen: a name that is mistyped would be drained for nothing.
fn expect_known(place: &DrainPlace, known: &[Instance]) -> Answer<()> {
    if known.iter().any(|one| place.has(&one.name, &one.dc)) {
        return Ok(());
    }
    let what = match place {
        DrainPlace::Instance(_) => format!("There is no {place}"),
        DrainPlace::Dc(_) => format!("There is no instance in {place}"),
    };
    let detail =
        format!("{what} with a heartbeat in the last hour; `dueline instance list` shows what there is.");
    Err(Problem::not_found(&format!("unknown_{}", place.word()), detail))
}

fn not_drained(place: &DrainPlace, drains: &Drains, instances: &[Instance]) -> Problem {
    let with_it = instances
        .iter()
        .filter(|one| place.has(&one.name, &one.dc))
        .find_map(|one| drains.of(&one.name, &one.dc));
    match (place, with_it) {
        (DrainPlace::Instance(name), Some((dc @ DrainPlace::Dc(of), _))) => {
            let detail = format!(
                "{name} is drained with all of {dc}: `dueline instance undrain --dc {of}` undoes that for all of them."
            );
            Problem::conflict("drained_with_dc", detail)
        }
        _ => {
            let detail =
                format!("There is no drain of {place}; `dueline instance list` shows what is drained.");
            Problem::not_found("not_drained", detail)
        }
    }
}

/// What a body says: exactly one place.
fn place(instance: Option<String>, dc: Option<String>) -> Answer<DrainPlace> {
    match (instance, dc) {
        (Some(name), None) => Ok(DrainPlace::Instance(text("/instance", name)?)),
        (None, Some(name)) => Ok(DrainPlace::Dc(text("/dc", name)?)),
        _ => {
            let detail = "The body says what is meant by exactly one of \"instance\" and \"dc\".";
            Err(Problem::bad_request("invalid_body", detail).at(""))
        }
    }
}

/// A drain, as the audit log names it.
fn told(place: &DrainPlace, force: bool) -> String {
    format!("{place}{}", if force { " force" } else { "" })
}

/// A drain, as answers show it.
fn view(place: &DrainPlace, operation: &Operation) -> DrainView {
    DrainView {
        target: place.word().to_owned(),
        of: place.name().to_owned(),
        since: format_time(operation.at),
        by: operation.by.as_ref().map(ToString::to_string),
        reason: operation.reason.as_ref().map(ToString::to_string),
        operation: operation.number,
    }
}

/// A drain as of what is drained `now`, and what else holds for the instances in it.
fn drained_view(
    place: &DrainPlace,
    operation: &Operation,
    known: &[Instance],
    now: &Drains,
    is_alive: impl Fn(&Instance) -> bool,
) -> DrainedView {
    let in_it = || known.iter().filter(|one| place.has(&one.name, &one.dc));
    let also = |one: &Instance| {
        let (other, by) = now.iter().find(|(other, _)| *other != place && other.has(&one.name, &one.dc))?;
        Some(AlsoDrained { instance: one.name.clone(), drain: view(other, by) })
    };
    DrainedView {
        drain: view(place, operation),
        drained: now.get(place).is_some(),
        instances: in_it().filter(|one| is_alive(one)).map(|one| one.name.clone()).collect(),
        also_drained: in_it().filter_map(also).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Wall;

    fn seen(name: &str, dc: &str) -> Instance {
        Instance {
            name: name.to_owned(),
            dc: dc.to_owned(),
            advertise: String::new(),
            version: String::new(),
            started_at: Wall(0),
            seen_at: Wall(0),
        }
    }

    #[test]
    fn a_body_names_one_place() {
        let name = |text: &str| Some(text.to_owned());
        assert_eq!(place(name("i-1"), None).map(|place| place.to_string()), Ok("instance i-1".to_owned()));
        assert_eq!(place(None, name("dc2")).map(|place| place.to_string()), Ok("data centre dc2".to_owned()));
        for (instance, dc) in [(None, None), (name("i-1"), name("dc2"))] {
            assert_eq!(place(instance, dc).expect_err("refused").code, "invalid_body");
        }
        assert_eq!(place(name("i\n1"), None).expect_err("refused").code, "invalid_field");
    }

    fn drains(places: &[DrainPlace]) -> Drains {
        let mut drains = Drains::default();
        for (number, place) in (1..).zip(places) {
            let change = Change::Drained(place.clone());
            drains.apply(&Operation { number, id: 1, at: Wall(0), by: None, reason: None, change });
        }
        drains
    }

    #[test]
    fn who_is_drained_with_a_data_centre_is_undrained_with_it() {
        let drains = drains(&[DrainPlace::Dc("dc2".into())]);
        let instances = [seen("i-1", "dc1"), seen("i-2", "dc2")];
        let code = |place: DrainPlace| not_drained(&place, &drains, &instances).code;
        assert_eq!(code(DrainPlace::Instance("i-2".into())), "drained_with_dc");
        assert_eq!(code(DrainPlace::Instance("i-1".into())), "not_drained");
        assert_eq!(code(DrainPlace::Dc("dc1".into())), "not_drained");
    }

    #[test]
    fn an_answer_says_who_is_alive_and_who_is_drained_by_another_drain_too() {
        let (dc2, i2) = (DrainPlace::Dc("dc2".into()), DrainPlace::Instance("i-2".into()));
        let known = [seen("i-1", "dc1"), seen("i-2", "dc2"), seen("i-3", "dc2")];
        let both = drains(&[dc2.clone(), i2.clone()]);
        let shown = |place: &DrainPlace, now: &Drains| {
            let operation = both.get(place).expect("drained");
            let view = drained_view(place, operation, &known, now, |one| one.name == "i-3");
            let also = view.also_drained.into_iter().map(|also| (also.instance, also.drain.target));
            (view.drained, view.instances, also.collect::<Vec<_>>())
        };
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let by = |target: &str| vec![("i-2".to_owned(), target.to_owned())];
        assert_eq!(shown(&dc2, &both), (true, names(&["i-3"]), by("instance")));
        assert_eq!(shown(&i2, &both), (true, vec![], by("dc")));
        assert_eq!(shown(&i2, &drains(std::slice::from_ref(&dc2))), (false, vec![], by("dc")));
        assert_eq!(shown(&dc2, &drains(std::slice::from_ref(&i2))), (false, names(&["i-3"]), by("instance")));
        assert_eq!(shown(&dc2, &drains(&[])), (false, names(&["i-3"]), vec![]));
    }

    #[test]
    fn only_a_name_that_was_never_seen_is_not_drained() {
        let known = [seen("i-2", "dc2")];
        let code = |place: DrainPlace| expect_known(&place, &known).map_err(|problem| problem.code);
        assert_eq!(code(DrainPlace::Instance("i-2".into())), Ok(()));
        assert_eq!(code(DrainPlace::Dc("dc2".into())), Ok(()));
        assert_eq!(code(DrainPlace::Instance("dc2".into())), Err("unknown_instance".into()));
        assert_eq!(code(DrainPlace::Dc("i-2".into())), Err("unknown_dc".into()));
    }
}
