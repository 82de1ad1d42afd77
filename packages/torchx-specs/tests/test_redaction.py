"""Tests of the masking of secrets."""

from __future__ import annotations

import pytest

from torchx_specs import InvalidRunConfigException, runopts
from torchx_specs.redaction import MASK, is_secret, masked, masked_text, masked_value

SECRET_NAMES = """
token apiKey AWS_SECRET_ACCESS_KEY AWS_SECRET_ID db_password PGPASSWORD MYSQL_PWD GITHUB_PAT
AUTH BASIC_AUTH registry_auth HF_TOKEN HFTOKEN OPENAI_API_KEY OPENAI_APIKEY SLACK_WEBHOOK_URL
SENTRY_DSN SSHPASS DB_PASS Authorization SESSION_COOKIE AZURE_CONNECTION_STRING ssh-key
clientSecret GOOGLE_CREDENTIALS --password
CREDS AWS_CREDS DB_CRED PW DB_PW PASSWORD_PROD DB_PASS_PROD API_KEY_V2 API_KEY_2 HF_TOKEN_OLD
OPENAI_API_KEYS api_key_for_tests CONN_STR DB_CONN_STR PG_CONNSTR PRIVKEY SSH_PRIVATEKEY KEYPASS
KEYSTORE_PASS SESSION SESSION_KEY SESSION_TOKEN PHPSESSID LOGIN REGISTRY_LOGIN DB_PASSCODE
hf-token db.password JWT PASSWORDS PASS --pass --pwd X-Api-Key ACCOUNTKEY
"""
OTHER_NAMES = """
queue key key_name topologyKey PUBLIC_KEY tokenizer TOKENIZERS_PARALLELISM MAX_TOKENS
max_new_tokens num-tokens PWD OLDPWD COMPASS BYPASS pass PATH PATTERN AUTHOR AUTH_TYPE
secretName secretKeyRef HF_TOKEN_PATH PASSWORD_FILE tokenExpirationSeconds HOST URL keyboard
KEYBOARD TOKENIZER PASS_THROUGH MAX_TOKENS_V2 SESSION_DIR SESSION_ID XDG_SESSION_ID session
TORCHX_INTERNAL_SESSION_ID DESKTOP_SESSION LOGIN_NODE --login LOGNAME CREDENTIALS_FILE KEYS
sort_keys KEY_1 v2 PWD_OLD POWER CONNECTION STR PRIVATE KEY_COUNT TOKEN_LIMIT_TEST MONKEY
DISPATCH_KEYS PASSENGERS LEGACY AUTHORITY SPWM AWS_ACCESS_KEY_ID
pad_token eos-token
"""


@pytest.mark.parametrize("name", SECRET_NAMES.split())
def test_name_suggests_a_secret(name: str) -> None:
    assert is_secret(name)
    assert masked({name: "s3cret"}) == {name: MASK}


@pytest.mark.parametrize("name", OTHER_NAMES.split())
def test_name_suggests_no_secret(name: str) -> None:
    assert not is_secret(name)
    assert masked({name: "value"}) == {name: "value"}


LETTERS = "aB3dE6gH9" * 5
TEXTS = {
    ";pwd=x": f";pwd={MASK}",
    "python train.py --api-key abc --lr 1": f"python train.py --api-key {MASK} --lr 1",
    "run --hf-token 'a b' --max-tokens 5": f"run --hf-token '{MASK}' --max-tokens 5",
    'export HF_TOKEN="a b" X=1': f'export HF_TOKEN="{MASK}" X=1',
    "HF_TOKEN=abc,LR=1": f"HF_TOKEN={MASK},LR=1",
    "run --password $PW --token-file f TOKEN=${secret:hf}": (
        "run --password $PW --token-file f TOKEN=${secret:hf}"
    ),
    "run --password --token -v": "run --password --token -v",
    "postgres://me:p@ss@db/x": f"postgres://me:{MASK}@db/x",
    "redis://:pw@host:6379": f"redis://:{MASK}@host:6379",
    "pip install --index-url https://u:pw@host/simple x": (
        f"pip install --index-url https://u:{MASK}@host/simple x"
    ),
    "https://host/f?name=a&access_token=abc&x=1": (
        f"https://host/f?name=a&access_token={MASK}&x=1"
    ),
    "https://s3/x?X-Amz-Signature=abc": f"https://s3/x?X-Amz-Signature={MASK}",
    "https://hooks.slack.com/services/T0/B0/abc": f"https://hooks.slack.com/{MASK}",
    "https://discord.com/api/webhooks/1/abc": f"https://discord.com/api/webhooks/{MASK}",
    f"clone https://ghp_{LETTERS}@github.com": f"clone https://{MASK}@github.com",
    f"hf_{LETTERS}": MASK,
    f"x sk-proj-{LETTERS} y": f"x {MASK} y",
    f"xoxb-12345-{LETTERS}": MASK,
    f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.{LETTERS}": MASK,
    "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----": MASK,
    "pay with sk_live_51H8abcdEFGH": f"pay with {MASK}",
    "rk_test_51H8abcdEFGH": MASK,
    "hvs.CAESIJabcdefgh": MASK,
    "GOCSPX-abcd_EFGH-1234": MASK,
    "dop_v1_0123456789abcdef": MASK,
    "AKIAIOSFODNN7EXAMPLE": MASK,
    "Bearer x": f"Bearer {MASK}",
    "Basic eA==": f"Basic {MASK}",
    "curl -H 'Authorization: Bearer x' host": f"curl -H 'Authorization: Bearer {MASK}' host",
    "authorization=secret1": f"authorization={MASK}",
    "sent Bearer abc.def-123 to host": f"sent Bearer {MASK} to host",
    "sent Basic dXNlcjpwYXNz to host": f"sent Basic {MASK} to host",
    "Server=db;User Id=me;Password=p w;Port=1": f"Server=db;User Id=me;Password={MASK} w;Port=1",
    "Server=db;Uid=me;Pwd=pw;Port=1": f"Server=db;Uid=me;Pwd={MASK};Port=1",
    "host=db user=me password=pw port=1": f"host=db user=me password={MASK} port=1",
    "export DB_PASSWORD=pw; run": f"export DB_PASSWORD={MASK}; run",
    "AccountName=a;AccountKey=ab+/c==;E=f": f"AccountName=a;AccountKey={MASK};E=f",
    "bad env {'HF_TOKEN': 'x', 'A': 'b'}": f"bad env {{'HF_TOKEN': '{MASK}', 'A': 'b'}}",
    "git clone https://s3cr3t@host/x": f"git clone https://{MASK}@host/x",
    "https://s3cr3t:@host/x": f"https://{MASK}:@host/x",
    "https://s3cr3t:x-oauth-basic@host/x": f"https://{MASK}:x-oauth-basic@host/x",
    # options of programs
    "curl -u me:word https://u:pw@h": f"curl -u me:{MASK} https://u:{MASK}@h",
    "/usr/bin/curl --user 'me:a b' h": f"/usr/bin/curl --user 'me:{MASK}' h",
    "tool --user me:s3cret -x": f"tool --user me:{MASK} -x",
    "-u me:s3cret": f"-u me:{MASK}",
    "mysql -uroot -pword db; ls -p x": f"mysql -uroot -p{MASK} db; ls -p x",
    "mysqldump -p'a b' db": f"mysqldump -p'{MASK}' db",
    "sshpass -p word ssh h": f"sshpass -p {MASK} ssh h",
    "podman login -u me -p 'word' ghcr.io": f"podman login -u me -p '{MASK}' ghcr.io",
    "cannot run ['docker', 'login', '-p', 'word']": (
        f"cannot run ['docker', 'login', '-p', '{MASK}']"
    ),
    "unzip -P word a.zip": f"unzip -P {MASK} a.zip",
    "run --pass word --pwd=word --pwd word": f"run --pass {MASK} --pwd={MASK} --pwd {MASK}",
    "run ['--hf-token', 'word']": f"run ['--hf-token', '{MASK}']",
    # names with colons
    "run --token:word -v": f"run --token:{MASK} -v",
    "run --env HF_TOKEN:word,LR:1": f"run --env HF_TOKEN:{MASK},LR:1",
    "--env db_password:word": f"--env db_password:{MASK}",
    "curl -H 'X-Api-Key: word' h": f"curl -H 'X-Api-Key: {MASK}' h",
    "PRIVATE-TOKEN: word": f"PRIVATE-TOKEN: {MASK}",
    "Cookie: id=1; session=word": f"Cookie: {MASK}",
    "db:\n  password: word\n  port: 1": f"db:\n  password: {MASK}\n  port: 1",
    "a: 1\n- token: word  # mine": f"a: 1\n- token: {MASK}  # mine",
    "secret: 'a b'\nx: 1": f"secret: '{MASK}'\nx: 1",
    "secret: |\n  a b\nx: 1": f"secret: {MASK}\nx: 1",
    "ValueError: db: user: me password: word port: 1": (
        f"ValueError: db: user: me password: {MASK} port: 1"
    ),
    "got token: ab12cd": f"got token: {MASK}",
    # settings, .netrc, JSON
    "[default]\naws_secret_access_key = wJa/rXU\nregion = x": (
        f"[default]\naws_secret_access_key = {MASK}\nregion = x"
    ),
    "machine h login me password word machine": f"machine h login me password {MASK} machine",
    "default\n login me\n password word": f"default\n login me\n password {MASK}",
    'bad {\\"token\\": \\"word': f'bad {{\\"token\\": \\"{MASK}',
    'got {"password": 12345, "n": 1}': f'got {{"password": {MASK}, "n": 1}}',
    "[{'name': 'HF_TOKEN', 'value': 'word'}]": f"[{{'name': 'HF_TOKEN', 'value': '{MASK}'}}]",
    "monkey=password=word": f"monkey=password={MASK}",
    '{"HF_TOKEN": b"word"}': f'{{"HF_TOKEN": b"{MASK}"}}',
    "env {'HF_TOKEN': '${secret:hf} x', 'A_TOKEN': '-x'}": (
        f"env {{'HF_TOKEN': '{MASK}', 'A_TOKEN': '{MASK}'}}"
    ),
}
PLAIN_TEXTS = [
    "ghcr.io/pytorch/torchx:0.7.0",
    "https://host:8080/path@2x.png",
    "s3://bucket/key",
    "sk-learn-pipeline-for-training",
    "hf_hub_download_of_the_whole_model_name",
    "git@github.com:owner/repo.git",
    "{'a': 'http://h:80', 'b': 'x@y'}",
    "-----BEGIN CERTIFICATE-----",
    "https://git@host/owner/repo",
    "https://host/search?q=a@b",
    "the bearer of bad news",
    'headers = {"Authorization": "Bearer " + token()}',
    "Basic usage of a Bearer token",
    "Basic Authentication is refused",
    "PWD=/home/me",
    "task_live_stream",
    "hvs.short",
    "AKIAlowercaselettersx",
    "mysql -p --password=$DB_PASSWORD",
    "lr=0.1",
    "{'tokenizer': 'bert', 'token_type': 'x', 'max_tokens': '8'}",
    # options of programs
    "docker run -u 1000:1000 -p 8080:80 img",
    "docker run --user app1:group1 img",
    "chown -u node:node x",
    "sbatch -p gpu-a100 x.sh",
    "grep -A x1y2z -W x1y2z && ssh -p 2222 h && mkdir -p a1/b2",
    "mysql -u root -p db",
    "mysql x; sbatch -pgpu1",
    "apptainer exec --pwd /work img",
    # names with colons
    "unexpected token: foo",
    "Unexpected token: '}'",
    "invalid token: expired",
    "the password: too short",
    "option --token: missing value",
    "use --password to set it, or --token must be given",
    "def f(token: str, password: str = ''):",
    "    token: The API token of the service",
    "api_key: required",
    "image vault-secret:1.0 token:latest ghcr.io/x/hf-token:v2",
    "${secret:hf} {'HF_TOKEN': '${secret:hf}'} --password '$PW'",
    "['--token', '-v', 'docker', 'login', '-p', '-u']",
    "tests/test_secret.py:12: error; secret.json: permission denied",
    "tokenizer: bert pad_token: [PAD] eos_token='</s>'",
    "forward_pass=12ms sort_key=name cache_key: step",
    "key: value, sort_keys: true, session: started",
    "tokens_per_second=123 token_loss=0.3 num_token: 5 token_accuracy: 0.9a",
    "arn:aws:secretsmanager:eu-west-1:1234:secret:db1x2",
    "cannot run '/etc/passwd': permission denied",
    "option secret_mounts: 'x' is not NAME:/path",
    """env={"HF_TOKEN": secret("hf")}, secrets={"A": "b"}""",
    # settings, .netrc
    'api_key = os.environ["X"]',
    "hf_token = get_token()",
    "the default password policy, and login with password authentication",
    "{'name': 'LR', 'value': '1'}",
]


@pytest.mark.parametrize(("text", "expected"), TEXTS.items())
def test_secret_in_text_is_masked(text: str, expected: str) -> None:
    assert masked_text(text) == expected
    assert masked([{"about": text}]) == [{"about": expected}]


@pytest.mark.parametrize("text", PLAIN_TEXTS)
def test_text_without_secrets_is_unchanged(text: str) -> None:
    assert masked_text(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "://a:" * 20_000,
        "eyJ" * 50_000,
        "?" + "token" * 50_000,
        "sk-" * 50_000,
        "-" * 300_000,
        "https://a" * 50_000,
        "Bearer " * 50_000,
        "Basic a" * 50_000,
        "Basic " + "aA" * 100_000,
        "password" + " " * 300_000,
        "password=" * 50_000,
        "authorization:" * 50_000,
        ";pwd" * 50_000,
        "'token" * 50_000,
        "'" + "token" * 50_000,
        "-p " * 100_000,
        " -p a" * 5_000,
        "--user a:" * 10_000,
        "docker a " * 50_000 + " login -p x",
        "machine a login " * 50_000,
        "token: x1y2z " * 20_000,
        "name: a, value: " * 50_000,
        "cookie: " * 50_000,
        "token" + "\\" * 300_000,
        ("token" + " " * 1000) * 300,
        "password: |\n" * 50_000,
    ],
)
def test_masking_needs_linear_time(text: str) -> None:
    masked_text(text * 4)  # Quadratic time would take minutes.


def test_kubernetes_manifest_keeps_references() -> None:
    reference = {"secretKeyRef": {"name": "hf", "key": "token"}}
    spec = {
        "imagePullSecrets": [{"name": "registry"}],
        "automountServiceAccountToken": False,
        "volumes": [
            {"name": "v", "secret": {"secretName": "hf", "defaultMode": 0o400}},
            {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
        ],
        "topologyKey": "kubernetes.io/hostname",
        "tolerations": [{"key": "nvidia.com/gpu", "value": "yes"}],
        "containers": [
            {
                "env": [
                    {"name": "HF_TOKEN", "value": "s3cret"},
                    {"name": "WANDB_API_KEY", "valueFrom": reference},
                    {"name": "LEVEL", "value": "1"},
                ]
            }
        ],
    }
    shown = masked({"kind": "Pod", "spec": spec})["spec"]
    assert shown["containers"][0]["env"][0] == {"name": "HF_TOKEN", "value": MASK}
    shown["containers"][0]["env"][0]["value"] = "s3cret"
    assert shown == spec
    secret = {"kind": "Secret", "metadata": {"name": "x"}, "data": {"a": "YQ=="}, "stringData": {}}
    assert masked(secret) == {**secret, "data": {"a": MASK}}


def test_aws_request_keeps_references() -> None:
    arn = "arn:aws:secretsmanager:x"
    given = {
        "environment": [{"name": "PGPASSWORD", "value": "pw"}, {"name": "A", "value": "1"}],
        "secrets": [{"name": "HF_TOKEN", "valueFrom": arn}],
        "tags": [{"Key": "k", "Value": "v"}, {"Key": "api_key", "Value": "v"}],
        "hyper": [{"Name": "token", "Value": "x"}],
    }
    assert masked(given) == {
        "environment": [{"name": "PGPASSWORD", "value": MASK}, {"name": "A", "value": "1"}],
        "secrets": [{"name": "HF_TOKEN", "valueFrom": arn}],
        "tags": [{"Key": "k", "Value": "v"}, {"Key": "api_key", "Value": MASK}],
        "hyper": [{"Name": "token", "Value": MASK}],
    }


def test_options_in_a_command_line_are_masked() -> None:
    argv = ["train.py", "--token", "abc", "--password=abc", "--max_tokens", "8", "--token", "-v"]
    shown = ["train.py", "--token", MASK, f"--password={MASK}", *argv[4:]]
    assert masked(argv) == shown
    bash = ["bash", "--login", "x.sh"]
    assert masked(["--token", 12, *bash]) == ["--token", MASK, *bash]
    argv = [
        "env",
        "HF_TOKEN=abc",
        "LR=1",
        "train.py",
        "+db.password=abc",
        "optimizer.lr=2",
        "a b=c",
    ]
    shown = ["env", f"HF_TOKEN={MASK}", "LR=1", "train.py", f"+db.password={MASK}", *argv[5:]]
    assert masked(argv) == shown


def test_passwords_of_programs_in_a_command_line_are_masked() -> None:
    for argv, shown in [
        (["curl", "-u", "me:word"], ["curl", "-u", f"me:{MASK}"]),
        (["curl", "--user=me:word"], ["curl", f"--user=me:{MASK}"]),
        (["x", "-ume:s3cret"], ["x", f"-ume:{MASK}"]),
        (["env", "A=1", "/bin/mysql", "-pword"], ["env", "A=1", "/bin/mysql", f"-p{MASK}"]),
        (["docker", "login", "-p", "word"], ["docker", "login", "-p", MASK]),
        (["x", "--pwd", "word"], ["x", "--pwd", MASK]),
    ]:
        assert masked(argv) == shown
    for argv in (
        ["docker", "run", "-u", "1000:1000", "-p", "8080:80", "img"],
        ["mysql", "-p", "db"],
        ["sbatch", "-p", "gpu1", "-pgpu1"],
        ["apptainer", "exec", "--pwd", "/work", "img"],
    ):
        assert masked(argv) == argv


def test_values_that_are_no_secret_stay() -> None:
    given = {"token": "", "password": None, "secret": True, "secrets": []}
    assert masked(given) == given
    assert masked({"password": 1234, "secrets": {"a": "b"}}) == {"password": MASK, "secrets": MASK}
    assert masked_value("PWD", "/home/me") == "/home/me"


def test_nested_values_and_urls() -> None:
    given = {"a": [{"token": "t"}, "https://me:pw@host/x"], "password": "", "n": 1}
    assert masked(given) == {
        "a": [{"token": MASK}, f"https://me:{MASK}@host/x"],
        "password": "",
        "n": 1,
    }
    assert given["a"] == [{"token": "t"}, "https://me:pw@host/x"]


def test_an_error_about_options_shows_no_secret() -> None:
    opts = runopts()
    opts.add("api_token", type_=str, help="")
    with pytest.raises(InvalidRunConfigException) as caught:
        opts.resolve({"api_token": "s3cret", "qeue": "x"})
    assert "s3cret" not in str(caught.value)
    assert "qeue" in str(caught.value)


def test_an_option_of_a_wrong_type_shows_no_secret() -> None:
    opts = runopts()
    opts.add("api_token", type_=int, help="", default=1)
    for given in ({"api_token": ["s3cret"]}, {"api_token": "s3cret"}):
        with pytest.raises(InvalidRunConfigException, match="api_token, must be") as caught:
            opts.resolve(given)
        assert "s3cret" not in str(caught.value)
    with pytest.raises(InvalidRunConfigException) as caught:
        opts.cfg_from_str("api_token=s3cret")
    assert "s3cret" not in str(caught.value)


def test_json_in_a_text_is_masked() -> None:
    annotation = '{"HF_TOKEN": "s3cret", "team": "x"}'
    assert masked({"annotations": {"metadata": annotation}}) == {
        "annotations": {"metadata": f'{{"HF_TOKEN": "{MASK}", "team": "x"}}'}
    }
    assert masked(["--x", annotation]) == ["--x", f'{{"HF_TOKEN": "{MASK}", "team": "x"}}']
    for text in ('{"team":"x"}', "{a: b}", "[" * 100_000, '[1, "a"]'):
        assert masked([text]) == [text]
