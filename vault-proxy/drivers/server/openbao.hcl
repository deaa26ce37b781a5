# OpenBao for docker-compose.yml: one node that unseals itself, and that knows one login, the vault proxy's.
#
#   - It is set up once, at its first start on an empty volume, by the requests below. The root token is revoked after them: nobody has one.
#   - It unseals itself by a key in a file (./secrets/openbao.unseal.key). Whoever has that file and the volume has everything; without the file the volume is
#     worth nothing. On more than one machine use a server of your own that is unsealed by a key service, and VAULT_ADDR.
#   - It speaks without TLS, on a network that it shares with the vault proxy alone.

ui           = false
api_addr     = "http://openbao:8200"
cluster_addr = "http://127.0.0.1:8201"

listener "tcp" {
  address     = "0.0.0.0:8200"
  tls_disable = true
}

storage "raft" {
  path    = "/openbao/file"
  node_id = "one"
}

seal "static" {
  current_key_id = "one"
  current_key    = "file:///run/secrets/openbao.unseal.key"
}

# What vault-proxy/drivers/server/driver.ts uses, and nothing else.
initialize "store" {
  request "mount" {
    operation = "update"
    path      = "sys/mounts/secret"
    data = {
      type    = "kv"
      options = { version = "2" }
    }
  }
  request "policy" {
    operation = "update"
    path      = "sys/policies/acl/manyhands"
    data = {
      policy = "path \"secret/data/manyhands/*\" { capabilities = [\"create\", \"read\", \"update\"] }\npath \"secret/metadata/manyhands/*\" { capabilities = [\"create\", \"update\", \"list\", \"delete\"] }\n"
    }
  }
}

# Role and secret are made by the service `openbao-keys`, not here: the vault proxy reads them from the same files.
initialize "login" {
  request "approle" {
    operation = "update"
    path      = "sys/auth/approle"
    data = {
      type = "approle"
    }
  }
  request "role" {
    operation = "update"
    path      = "auth/approle/role/manyhands"
    data = {
      token_policies = ["manyhands"]
      token_ttl      = "1h"
      token_max_ttl  = "24h"
    }
  }
  request "role-id" {
    operation = "update"
    path      = "auth/approle/role/manyhands/role-id"
    data = {
      role_id = {
        eval_source = "file"
        eval_type   = "string"
        path        = "/run/openbao/role-id"
      }
    }
  }
  request "secret-id" {
    operation = "update"
    path      = "auth/approle/role/manyhands/custom-secret-id"
    data = {
      secret_id = {
        eval_source = "file"
        eval_type   = "string"
        path        = "/run/openbao/secret-id"
      }
    }
  }
}
