//! Credentials over headers, as any caller sends them: good ones, and everything that only looks like one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::{HeaderMap, HeaderValue};
use serde_json::{Value, json};
use signalbox_domain::identity::{ClaimNames, ClaimRules, Role};
use signalbox_ports::clock::Clock;
use signalbox_ports::memory::{ManualClock, MemoryStore};
use signalbox_tests::issuer::{AUDIENCE, ISSUER, Signer, claims, key_set};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::RandomIds;
use crate::api::Caller;
use crate::errors::Refusal;
use crate::identity::{ApiKeys, Credentials, Identify, KeyPlace, KeySet, KeySetError, KeySource, RefreshTimes, Tokens};

/// A server's identity, and what can be moved under it.
pub(super) struct World {
    pub(super) identity: Arc<Credentials>,
    pub(super) keys: Arc<ApiKeys>,
    pub(super) store: Arc<MemoryStore>,
    pub(super) clock: Arc<ManualClock>,
}

impl World {
    async fn over(place: KeyPlace) -> Self {
        let clock = Arc::new(ManualClock::default());
        let source = KeySource::open(place, RefreshTimes::default(), clock.clone()).await.unwrap();
        let rules = ClaimRules {
            issuer: ISSUER.to_owned(),
            audience: AUDIENCE.to_owned(),
            leeway_seconds: 30,
            names: ClaimNames::default(),
        };
        let store = Arc::new(MemoryStore::new(clock.clone()));
        let keys = Arc::new(ApiKeys::new(store.clone(), clock.clone(), Arc::new(RandomIds)));
        let identity = Credentials::new(Some(Tokens { source, rules }), Some(keys.clone()), clock.clone());
        Self { identity: Arc::new(identity), keys, store, clock }
    }

    /// Over a file with these keys.
    pub(super) async fn with(signers: &[Signer]) -> (Self, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("jwks.json"), key_set(signers).to_string()).unwrap();
        (Self::over(KeyPlace::File(dir.path().join("jwks.json"))).await, dir)
    }

    /// Good claims.
    pub(super) fn claims(&self) -> Value {
        claims("acme", "ann", "creator", "tool:web.fetch", self.clock.now().0 / 1_000 + 600)
    }

    async fn says(&self, token: &str) -> Result<Caller, Refusal> {
        self.identity.identify(&bearer(token)).await
    }

    /// What the caller is told of a token: the tenant it is let into, or the code.
    async fn told(&self, token: &str) -> String {
        match self.says(token).await {
            Ok(caller) => caller.tenant_id.to_string(),
            Err(refusal) => refusal.code().to_owned(),
        }
    }
}

pub(super) fn bearer(token: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("authorization", HeaderValue::from_str(&format!("Bearer {token}")).unwrap());
    headers
}

/// A token of any header, any claims and any signature.
fn forged(header: &str, claims: &str, signature: &[u8]) -> String {
    [header.as_bytes(), claims.as_bytes(), signature].map(|part| URL_SAFE_NO_PAD.encode(part)).join(".")
}

#[tokio::test]
async fn a_token_of_each_algorithm_is_believed() {
    let (world, _dir) = World::with(&Signer::ALL).await;
    for signer in Signer::ALL {
        let caller = world.says(&signer.token(&world.claims())).await.unwrap();
        assert_eq!((caller.tenant_id.as_str(), caller.actor.actor_id.as_str()), ("acme", "ann"), "{signer:?}");
        assert_eq!((caller.actor.role, caller.scopes), (Role::Creator, vec!["tool:web.fetch".to_owned()]));
    }
    for typ in ["JWT", "jwt", "at+jwt", "application/at+jwt"] {
        let header = json!({"alg": "ES256", "kid": "es", "typ": typ});
        assert_eq!(world.told(&Signer::Es256.sign(&header, &world.claims())).await, "acme", "{typ}");
    }
    let (single, _dir) = World::with(&[Signer::Es256]).await;
    let nameless = Signer::Es256.sign(&json!({"alg": "ES256"}), &single.claims());
    assert_eq!(single.told(&nameless).await, "acme", "with one key there is nothing to choose");
    assert_eq!(world.told(&nameless).await, "unauthenticated", "with three there is");
}

#[tokio::test]
async fn whoever_chooses_the_algorithm_is_refused() {
    let (world, _dir) = World::with(&Signer::ALL).await;
    let claims = world.claims().to_string();
    for none in ["none", "None", "nOnE", "NONE", ""] {
        let header = json!({"alg": none, "kid": "rs"}).to_string();
        assert_eq!(world.told(&forged(&header, &claims, b"")).await, "unauthenticated", "{none:?}");
    }
    // The public key of the issuer as the secret of a shared-key signature, in each form somebody might hold it in.
    let modulus = Signer::Rs256.jwk()["n"].as_str().unwrap().to_owned();
    let der = URL_SAFE_NO_PAD.decode(&modulus).unwrap();
    let body = STANDARD.encode(&der);
    let pems =
        ["PUBLIC KEY", "RSA PUBLIC KEY"].map(|kind| format!("-----BEGIN {kind}-----\n{body}\n-----END {kind}-----"));
    let mut secrets: Vec<Vec<u8>> = vec![der, modulus.into_bytes(), Signer::Rs256.jwk().to_string().into_bytes()];
    for pem in pems {
        secrets.extend([pem.clone().into_bytes(), format!("{pem}\n").into_bytes()]);
    }
    for secret in secrets {
        for (alg, algorithm) in [("HS256", jsonwebtoken::Algorithm::HS256), ("HS512", jsonwebtoken::Algorithm::HS512)] {
            let header = json!({"alg": alg, "kid": "rs"}).to_string();
            let message = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(&claims));
            let key = jsonwebtoken::EncodingKey::from_secret(&secret).unwrap();
            let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &key, algorithm).unwrap();
            assert_eq!(world.told(&format!("{message}.{signature}")).await, "unauthenticated", "{alg}");
        }
    }
    // A good signature, under the name of another key or of another algorithm.
    for signer in Signer::ALL {
        for other in Signer::ALL.into_iter().filter(|other| *other != signer) {
            for header in [
                json!({"alg": signer.alg(), "kid": other.kid()}),
                json!({"alg": other.alg(), "kid": signer.kid()}),
                json!({"alg": other.alg(), "kid": other.kid()}),
            ] {
                assert_eq!(world.told(&signer.sign(&header, &world.claims())).await, "unauthenticated", "{header}");
            }
        }
    }
}

#[tokio::test]
async fn a_token_brings_no_key_and_no_place_to_fetch_one_from() {
    let (world, _dir) = World::with(&Signer::ALL).await;
    let attacker = Signer::EdDsa(66);
    let trap = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/keys", trap.local_addr().unwrap());
    for injected in [
        json!({"jwk": attacker.jwk()}),
        json!({"jku": url}),
        json!({"x5u": url}),
        json!({"x5c": ["MIIB"]}),
        json!({"jwk": attacker.jwk(), "jku": url, "kid": "ed-66"}),
        json!({"kid": url}),
        json!({"kid": "../../etc/passwd"}),
        json!({"kid": "ed-1\u{0}"}),
        json!({"kid": 7}),
        json!({"kid": ["ed-1"]}),
        json!({"kid": null}),
    ] {
        let mut header = json!({"alg": "EdDSA", "kid": "ed-1"});
        header.as_object_mut().unwrap().extend(injected.as_object().unwrap().clone());
        assert_eq!(world.told(&attacker.sign(&header, &world.claims())).await, "unauthenticated", "{header}");
    }
    // Beside a good signature the same headers change nothing.
    let header = json!({"alg": "EdDSA", "kid": "ed-1", "jku": url, "jwk": attacker.jwk(), "x5u": url});
    assert_eq!(world.told(&Signer::EdDsa(1).sign(&header, &world.claims())).await, "acme");
    let nobody = tokio::time::timeout(std::time::Duration::from_millis(200), trap.accept()).await;
    assert!(nobody.is_err(), "somebody was asked for keys");
}

#[tokio::test]
async fn a_header_that_says_more_than_is_understood_is_refused() {
    let (world, _dir) = World::with(&Signer::ALL).await;
    let signer = Signer::EdDsa(1);
    for (member, value) in [
        ("crit", json!(["exp"])),
        ("crit", json!([])),
        ("crit", json!("b64")),
        ("typ", json!("secevent+jwt")),
        ("typ", json!("dpop+jwt")),
        ("typ", json!("JWE")),
        ("typ", json!(7)),
        ("cty", json!("JWT")),
        ("enc", json!("A256GCM")),
        ("zip", json!("DEF")),
        ("alg", json!(["EdDSA"])),
        ("alg", json!("eddsa")),
        ("alg", json!("PS256")),
        ("alg", json!("ES384")),
    ] {
        let mut header = json!({"alg": "EdDSA", "kid": "ed-1"});
        header[member] = value;
        assert_eq!(world.told(&signer.sign(&header, &world.claims())).await, "unauthenticated", "{header}");
    }
    let claims = world.claims().to_string();
    for header in [
        r#"{"alg":"none","alg":"EdDSA","kid":"ed-1"}"#,
        r#"{"alg":"EdDSA","kid":"ed-1","kid":"es"}"#,
        r#"["EdDSA"]"#,
        "null",
        "",
        "{",
        "\u{feff}{\"alg\":\"EdDSA\",\"kid\":\"ed-1\"}",
        &format!(r#"{{"alg":"EdDSA","kid":"ed-1","x":"{}"}}"#, "y".repeat(3_000)),
        &format!(r#"{{"alg":"EdDSA","kid":"ed-1","x":{}{}}}"#, "[".repeat(50), "]".repeat(50)),
    ] {
        assert_eq!(world.told(&signer.sign_text(header, &claims)).await, "unauthenticated", "{header}");
    }
    assert_eq!(world.told(&signer.sign(&json!({"kid": "ed-1"}), &world.claims())).await, "unauthenticated", "no alg");
}

#[tokio::test]
async fn a_token_that_was_touched_is_worth_nothing() {
    let (world, _dir) = World::with(&Signer::ALL).await;
    for signer in Signer::ALL {
        let token = signer.token(&world.claims());
        let parts: Vec<&str> = token.split('.').collect();
        let [header, claims, signature] = parts.as_slice() else { panic!("three parts") };
        let mut elevated = world.claims();
        elevated["role"] = json!("platform-operator");
        let elevated = URL_SAFE_NO_PAD.encode(elevated.to_string());
        let flipped = if signature.starts_with('A') { "B" } else { "A" };
        for touched in [
            format!("{header}.{elevated}.{signature}"),
            format!("{header}.{claims}.{flipped}{}", &signature[1..]),
            format!("{header}.{claims}."),
            format!("{header}.{claims}"),
            format!("{header}.{claims}.{signature}."),
            format!("{header}.{claims}.{signature}.{signature}"),
            format!("{header}.{claims}.{signature}=="),
            format!("{header}=.{claims}.{signature}"),
            format!("{header}..{signature}"),
            format!(".{claims}.{signature}"),
            "..".to_owned(),
            ".".to_owned(),
            format!("{header}.{claims}.{}", "A".repeat(signature.len())),
            format!("{header}.{claims}.{}", &signature[..signature.len() - 4]),
        ] {
            assert_eq!(world.told(&touched).await, "unauthenticated", "{touched}");
        }
        assert_eq!(world.told(&token).await, "acme");
    }
}

#[tokio::test]
async fn claims_that_are_not_good_are_refused_though_they_are_signed() {
    let (world, _dir) = World::with(&[Signer::EdDsa(1)]).await;
    let now = world.clock.now().0 / 1_000;
    for (claim, value) in [
        ("exp", json!(now - 30)),
        ("exp", json!("soon")),
        ("nbf", json!(now + 31)),
        ("iat", json!(now + 31)),
        ("iss", json!("https://other.example")),
        ("aud", json!("other")),
        ("sub", json!("system:run")),
        ("sub", json!("key:loader")),
        ("sub", json!("ann\0")),
        ("sub", json!("änn")),
        ("tenant", json!("")),
        ("role", json!("root")),
        ("scope", json!([7])),
    ] {
        let mut claims = world.claims();
        claims[claim] = value.clone();
        assert_eq!(world.told(&Signer::EdDsa(1).token(&claims)).await, "unauthenticated", "{claim} {value}");
    }
    for claim in ["exp", "iss", "aud", "sub", "tenant", "role"] {
        let mut claims = world.claims();
        claims.as_object_mut().unwrap().remove(claim);
        assert_eq!(world.told(&Signer::EdDsa(1).token(&claims)).await, "unauthenticated", "without {claim}");
    }
    let twice = world.claims().to_string().replacen('{', r#"{"tenant":"globex","#, 1);
    let header = json!({"alg": "EdDSA", "kid": "ed-1"}).to_string();
    assert_eq!(world.told(&Signer::EdDsa(1).sign_text(&header, &twice)).await, "unauthenticated");
}

#[tokio::test]
async fn what_is_told_is_the_same_whatever_was_wrong() {
    let (world, _dir) = World::with(&Signer::ALL).await;
    let mut expired = world.claims();
    expired["exp"] = json!(1);
    let mut two = bearer("a.b.c");
    two.append("authorization", HeaderValue::from_static("Bearer a.b.c"));
    let told = [
        world.identity.identify(&HeaderMap::new()).await,
        world.identity.identify(&two).await,
        world.says("a.b.c").await,
        world.says(&"x".repeat(9_000)).await,
        world.says(&Signer::Es256.token(&expired)).await,
        world.says(&Signer::EdDsa(66).token(&world.claims())).await,
        world.says("sbk_0").await,
        world.says(&format!("sbk_{}_{}", "0".repeat(32), "0".repeat(64))).await,
    ];
    let first = told[0].clone().unwrap_err();
    assert_eq!(first.code(), "unauthenticated");
    for answer in told {
        assert_eq!(answer.unwrap_err(), first);
    }
}

#[tokio::test]
async fn a_token_larger_than_8_kib_is_not_looked_at_and_a_good_one_up_to_it_is() {
    let (world, _dir) = World::with(&[Signer::EdDsa(1)]).await;
    let padded = |bytes: usize| {
        let mut claims = world.claims();
        claims["pad"] = json!("p".repeat(bytes));
        Signer::EdDsa(1).token(&claims)
    };
    let (fits, over) = (padded(5_500), padded(6_000));
    assert!(fits.len() < 8_192 && over.len() > 8_192, "{} {}", fits.len(), over.len());
    assert_eq!((world.told(&fits).await, world.told(&over).await), ("acme".to_owned(), "unauthenticated".to_owned()));
}

#[test]
fn a_key_set_that_is_wrong_in_itself_is_refused() {
    let parse = |set: Value| KeySet::parse(set.to_string().as_bytes()).map(|set| set.len());
    let ed = || Signer::EdDsa(1).jwk();
    let with = |member: &str, value: Value| {
        let mut jwk = ed();
        jwk[member] = value;
        json!({"keys": [jwk]})
    };
    assert_eq!(parse(key_set(&Signer::ALL)), Ok(3));
    assert_eq!(parse(with("d", json!("AAAA"))), Err(KeySetError::PrivateKey));
    assert_eq!(parse(json!({"keys": [ed(), {"kty": "oct", "k": "AAAA"}]})), Err(KeySetError::PrivateKey));
    assert_eq!(parse(json!({"keys": [ed(), ed()]})), Err(KeySetError::SameName("ed-1".to_owned())));
    for odd in [json!({}), json!([]), json!({"keys": {}}), json!({"keys": ["x"]}), json!({"keys": vec![ed(); 101]})] {
        assert_eq!(parse(odd.clone()), Err(KeySetError::NotASet), "{odd}");
    }
    assert!(matches!(KeySet::parse(br#"{"keys":[],"keys":[]}"#), Err(KeySetError::Json(_))));
    assert!(matches!(KeySet::parse(&vec![b' '; 300_000]), Err(KeySetError::Json(_))));
    // What is of no use here is left out: here it leaves nothing.
    for (member, value) in [
        ("use", json!("enc")),
        ("key_ops", json!(["sign"])),
        ("alg", json!("ES256")),
        ("alg", json!("HS256")),
        ("crv", json!("Ed448")),
        ("x", json!("AAAA")),
        ("x", json!("not base64!")),
        ("kty", json!("EC")),
        ("kid", json!(7)),
    ] {
        assert_eq!(parse(with(member, value.clone())), Err(KeySetError::NoUsableKey), "{member} {value}");
    }
    let mut short = Signer::Rs256.jwk();
    short["n"] = json!(URL_SAFE_NO_PAD.encode([0xff; 128]));
    assert_eq!(parse(json!({"keys": [short]})), Err(KeySetError::NoUsableKey), "1,024 bits are too few");
    for odd in
        ["http://issuer.example/k", "ftp://x/k", "https://u:p@x/k", "https://u@x/k", "", "x", "http://10.0.0.1/k"]
    {
        assert!(KeyPlace::url(odd).is_err(), "{odd}");
    }
    for good in ["https://issuer.example/k", "http://127.0.0.1:1/k", "http://[::1]/k", "http://localhost/k"] {
        assert!(KeyPlace::url(good).is_ok(), "{good}");
    }
}

#[tokio::test]
async fn a_new_key_of_the_issuer_is_noticed_and_an_old_one_forgotten() {
    let (world, dir) = World::with(&[Signer::EdDsa(1)]).await;
    let (old, new) = (Signer::EdDsa(1).token(&world.claims()), Signer::EdDsa(2).token(&world.claims()));
    std::fs::write(dir.path().join("jwks.json"), key_set(&[Signer::EdDsa(2)]).to_string()).unwrap();
    assert_eq!(world.told(&new).await, "unauthenticated", "not more often than every ten seconds");
    assert_eq!(world.told(&old).await, "acme");
    world.clock.advance_ms(10_000);
    assert_eq!(world.told(&new).await, "acme", "the key was not known, so the file was read again");
    assert_eq!(world.told(&old).await, "unauthenticated");
    // A file that is gone or broken takes nothing away.
    for text in ["nonsense", r#"{"keys":[]}"#] {
        std::fs::write(dir.path().join("jwks.json"), text).unwrap();
        world.clock.advance_ms(10_000);
        assert_eq!((world.told(&old).await, world.told(&new).await), ("unauthenticated".into(), "acme".into()));
    }
}

/// An issuer that answers each request with what `answer` says to the number of it.
async fn issuer(answer: impl Fn(usize) -> String + Send + 'static) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/keys", listener.local_addr().unwrap());
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = asked.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4_096];
            let _ = stream.read(&mut request).await;
            let said = answer(counter.fetch_add(1, Ordering::SeqCst));
            let _ = stream.write_all(said.as_bytes()).await;
            let _ = stream.shutdown().await;
        }
    });
    (url, asked)
}

fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())
}

#[tokio::test]
async fn keys_are_fetched_again_for_an_unknown_one_and_however_many_come_with_it() {
    let (url, asked) = issuer(|count| {
        ok(&key_set(if count == 0 { &[Signer::EdDsa(1)] } else { &[Signer::EdDsa(1), Signer::EdDsa(2)] }).to_string())
    })
    .await;
    let world = World::over(KeyPlace::url(&url).unwrap()).await;
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    world.clock.advance_ms(10_000);
    let new = Signer::EdDsa(2).token(&world.claims());
    let all = futures::future::join_all((0..50).map(|_| world.told(&new))).await;
    assert!(all.iter().all(|told| told == "acme"), "{all:?}");
    for seed in 10..60 {
        assert_eq!(world.told(&Signer::EdDsa(seed).token(&world.claims())).await, "unauthenticated");
    }
    assert_eq!(asked.load(Ordering::SeqCst), 2, "whoever makes up names does not make this server knock");
    // From time to time they are read again though nobody asks for it.
    world.clock.advance_ms(300_000);
    let fresh = Signer::EdDsa(1).token(&world.claims());
    assert_eq!(world.told(&fresh).await, "acme");
    tokio::time::timeout(std::time::Duration::from_secs(10), async {
        while asked.load(Ordering::SeqCst) < 3 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn an_issuer_that_fails_redirects_or_floods_changes_nothing() {
    let set = key_set(&[Signer::EdDsa(1), Signer::EdDsa(2)]).to_string();
    let (elsewhere, elsewhere_asked) = issuer({
        let set = set.clone();
        move |_| ok(&set)
    })
    .await;
    let (url, asked) = issuer(move |count| match count {
        0 => ok(&key_set(&[Signer::EdDsa(1)]).to_string()),
        1 => "HTTP/1.1 500 Oh\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_owned(),
        2 => format!("HTTP/1.1 302 Found\r\nlocation: {elsewhere}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"),
        3 => ok(&format!("{}{set}", " ".repeat(300_000))),
        4 => "nonsense".to_owned(),
        _ => ok(&set),
    })
    .await;
    let world = World::over(KeyPlace::url(&url).unwrap()).await;
    let tokens = |world: &World| (Signer::EdDsa(1).token(&world.claims()), Signer::EdDsa(2).token(&world.claims()));
    for count in 2..=5 {
        world.clock.advance_ms(10_000);
        let (known, new) = tokens(&world);
        assert_eq!(
            (world.told(&new).await, world.told(&known).await),
            ("unauthenticated".into(), "acme".into()),
            "{count}"
        );
        assert_eq!(asked.load(Ordering::SeqCst), count);
    }
    assert_eq!(elsewhere_asked.load(Ordering::SeqCst), 0, "a redirect is not followed");
    world.clock.advance_ms(10_000);
    assert_eq!(world.told(&tokens(&world).1).await, "acme", "and once it answers again, so does this server");
}

#[tokio::test]
async fn an_issuer_that_cannot_be_reached_at_the_start_is_asked_again() {
    let set = key_set(&[Signer::EdDsa(1)]).to_string();
    let (url, _) = issuer(move |count| if count == 0 { String::new() } else { ok(&set) }).await;
    let world = World::over(KeyPlace::url(&url).unwrap()).await;
    assert_eq!(world.told(&Signer::EdDsa(1).token(&world.claims())).await, "unauthenticated");
    world.clock.advance_ms(10_000);
    assert_eq!(world.told(&Signer::EdDsa(1).token(&world.claims())).await, "acme");
}

#[tokio::test]
async fn a_file_that_is_not_there_or_of_no_use_is_found_out_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::default());
    let path = dir.path().join("jwks.json");
    for text in [None, Some("nonsense"), Some(r#"{"keys":[]}"#)] {
        if let Some(text) = text {
            std::fs::write(&path, text).unwrap();
        }
        let opened = KeySource::open(KeyPlace::File(path.clone()), RefreshTimes::default(), clock.clone()).await;
        assert!(opened.is_err_and(|problem| problem.contains("jwks.json")), "{text:?}");
    }
}
