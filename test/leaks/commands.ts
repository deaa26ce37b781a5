// What programs do in a hand while it is looked at.

import type { Outside } from "./outside.ts";

const HOST_FORMS = ["plain", "gzip", "pieces", "failed", "escaped", "escaped-twice"];

/** Writes down everything that a program in a hand sees, and works with its repositories. */
export const LOOK_AROUND = [
  "env; set; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr '\\0' '\\n'; ls -laR /run /mnt /tmp; id",
  "git init -q repo && cd repo && git config user.email a@b && git config user.name a && env > env.txt && git add . && git commit -qm 'with the environment'; git remote add origin https://localhost/repo",
  "cd ../private && cat README.md && git config user.email a@b && git config user.name a && echo more > more && git add more && git commit -qm more && git push -q",
  "GIT_TRACE_CURL=1 GIT_TRACE=1 git pull -q 2> ../trace; git remote -v; git ls-remote ../echo; cat ../trace | head -c 20000; cd ..",
  "cp /proc/self/environ /tmp/environ; env | gzip > /tmp/env.gz",
].join("\n");

/** Asks the host outside with every placeholder, in each place where one is replaced; prints and keeps what it says. */
export function asking({ hostUrl, secureUrl }: Outside): string {
  return `export no_proxy= NO_PROXY=
python3 - <<'EOF' 2>&1 | tee /tmp/answers
import base64, os, urllib.request as u
token, password = os.environ['API_TOKEN'], os.environ['PASSWORD']
basic = base64.b64encode(f'me:{password}'.encode()).decode()
asked = [(f'/query?token={token}', {}, None), ('/away', {'authorization': token}, None)]
for form in '${HOST_FORMS.join(" ")}'.split():
  asked += [(f'/{form}', {'authorization': f'{how} {value}'}, None) for how, value in [('Bearer', token), ('Basic', basic)]]
  asked += [(f'/{form}-body', {'content-type': 'application/json'}, f'{{"token":"{token}"}}'.encode())]
for url in ['${hostUrl}', '${secureUrl}']:
  for path, headers, data in asked:
    try: answer = u.urlopen(u.Request(url + path, headers=headers, data=data), timeout=20)
    except Exception as error: answer = error
    print(url, path, answer, getattr(answer, 'headers', ''))
    try: print(answer.read())
    except Exception as error: print(error)
EOF`;
}
