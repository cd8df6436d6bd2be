"""nginx in front of a SuperLink: the nodes' Fleet API passes, and nothing else does."""

from __future__ import annotations

from pathlib import Path

from scarlet.flower.addresses import Address

# All that a SuperNode of flwr 1.41 asks for. Control (which starts runs on every node, without authentication in the
# open-source edition), Runtime (ServerApp and SuperExec), /health, /docs and /openapi.json are on the same port.
FLEET = (
    "register-node",  # refused by the SuperLink itself where nodes authenticate
    "unregister-node",
    "activate-node",
    "deactivate-node",
    "send-node-heartbeat",
    "pull-messages",
    "push-messages",
    "pull-object",
    "push-object",
    "confirm-message-received",
    "get-run",
    "get-fab",
)
_LARGEST_BODY = "512m"  # a message of ours is one object, and with FedAvg it holds all weights of a model


def nginx_command(nginx: str, folder: Path) -> list[str]:
    """How nginx is started: in the foreground, with nothing of the machine's own configuration."""
    return [nginx, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", str(folder / "error.log")]


def nginx_conf(
    folder: Path, listen: Address, superlink: int, tls: tuple[Path, Path] | None, inner_ca: Path | None
) -> str:
    """The configuration of nginx.

    `tls` is the certificate and the key that the outside sees; `inner_ca` vouches for the SuperLink on loopback.
    """
    scheme = "http" if inner_ca is None else "https"
    outside = f"listen {listen};"
    if tls is not None:
        outside = f"""listen {listen} ssl;
    ssl_certificate {_quoted(tls[0])};
    ssl_certificate_key {_quoted(tls[1])};
    ssl_protocols TLSv1.2 TLSv1.3;"""
    inside = ""
    if inner_ca is not None:
        inside = f"""
      proxy_ssl_trusted_certificate {_quoted(inner_ca)};
      proxy_ssl_name localhost;
      proxy_ssl_verify on;"""
    return f"""daemon off;
worker_processes 1;
pid {_quoted(folder / "nginx.pid")};
error_log {_quoted(folder / "error.log")} warn;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  server_tokens off;
  client_max_body_size {_LARGEST_BODY};
  client_body_temp_path {_quoted(folder / "body")};
  proxy_temp_path {_quoted(folder / "proxy")};
  fastcgi_temp_path {_quoted(folder / "fastcgi")};
  uwsgi_temp_path {_quoted(folder / "uwsgi")};
  scgi_temp_path {_quoted(folder / "scgi")};
  upstream superlink {{
    server 127.0.0.1:{superlink} max_fails=0;
    keepalive 16;
  }}
  server {{
    {outside}
    location / {{ return 403; }}
    # The path is written anew from the route's name, so that nothing else that a client puts into its URL goes on.
    location ~ ^/v1/fleet/({"|".join(FLEET)})$ {{
      proxy_pass {scheme}://superlink/v1/fleet/$1;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host localhost;
      proxy_request_buffering off;
      proxy_buffering off;
      proxy_read_timeout 120s;{inside}
    }}
  }}
}}
"""


def _quoted(path: Path) -> str:
    text = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'
