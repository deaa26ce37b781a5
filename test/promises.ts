// What this project promises, one sentence each. README.md quotes it; promises.test.ts sees to it that every one of them is proved by a test.

export const PROMISES = {
  "start:comes-up": "One command brings up everything, says what is a stand-in, and stops cleanly within five seconds.",
  "start:restarts": "A program that dies is started again, at the same place.",
  "start:no-orphans": "When the launcher is killed outright, no program of its installation stays behind.",
  "setting:unknown-stops": "A setting that does not exist, or has a value that is not allowed, stops the start with one line that names it.",
  "key:made-once": "Nodes that start at once on one keys folder end up with the same keys, readable by their owner alone.",
  "key:other-installation": "A node with other keys than its store's installation refuses to start.",
  "key:only-in-vault-proxy": "The model's key reaches the vault proxy and no other program.",
  "credential:unseen": "A credential's secrets come back in no answer, log line or error, and lie in no file of the installation unsealed.",
  "credential:kept": "What a file vault has answered is there, whole, after a kill or a power cut at any moment.",
  "log:power-cut": "What was acknowledged survives a power cut, on either store.",
  "turn:any-death": "Any program may die at any point of a turn: what was acknowledged is in the log once, and the turn comes to its end.",
  "tool:at-most-once": "A tool that is not safe to repeat runs at most once a use, whatever dies; what may have run is said so.",
  "wait:survives": "A session that waits for an answer waits on the same calls after everything died, and an interrupt always frees it.",
  "lease:stale-worker": "A worker that was frozen past its lease writes nothing and runs nothing afterwards.",
  "hand:walled": "A command in a container reaches no network, no file of the host and nothing of another session, and takes no more than its share.",
  "hand:reclaimed": "Whatever dies and whatever the container engine answers, in the end exactly the containers of live hands are there.",
  "hand:ends": "A command ends with its shell, at its time-out or at an interrupt, and everything that it started ends with it.",
  "hand:exact": "What a command printed and its exit code are told exactly; of long output the model gets the ends, and where all of it is.",
  "hand:dies":
    "A container may die at any moment: its call ends in a result that says so, nothing runs twice, and the next call has a new one on the same files.",
  "room:borders": "A room imports only the rooms that it may; a harness imports its contract and nothing above it.",
  "send:once": "A send that is repeated under its idempotency key, at once or after a crash, is one message and one turn.",
  "outcome:one-result": "An evaluation that has begun comes to one result, whatever dies meanwhile; the work that it judges is not done twice.",
  "interrupt:closes": "An interrupt ends what runs within seconds, and nothing offers or runs those calls again.",
  "history:exact": "What the model said goes back to it block for block, signatures included, whatever died in between.",
  "model:bounded":
    "A model that is overloaded or silent is asked again a bounded number of times, never sooner than it said, and the session goes on afterwards.",
  "picture:harmless": "No picture ends a session: it goes to the model as one that its API takes, or as a short note.",
  "text:whole": "Half a character never reaches a log or the model.",
  "prompt:stable": "Tools and system prompt are the same bytes at every request, across turns, crashes and sessions of one agent.",
  "stream:resumes": "A stream that is resumed from the last event it showed brings every later one, once, in order, on any gateway.",
  "mcp:both-eras": "Every scored scenario of the official MCP conformance suite passes in both eras, with each request at another replica.",
  "mcp:any-replica": "An MCP session is known on every replica and after a restart of all of them, and belongs to its caller alone.",
  "mcp:apart": "Callers never see each other's answers, progress or state, whatever ids and tokens their requests share.",
  "mcp:relay": "What passes the door of a hand is what the hand and its client said, in both eras, on any gateway.",
  "redis:returns": "When Redis comes back, streams and turns go on within ten seconds, with nothing lost.",
} as const;

export type PromiseId = keyof typeof PROMISES;
