// The chat page. It shows what the server relays (items.ts) and sends what people do; it keeps nothing that the log doesn't have.
//
//   P1  An item is shown once, by its id, however often it comes: a reconnect or a reload doubles nothing.
//   P2  Text from outside is only ever set as text.
//   P3  A half-written answer is forgotten when the connection breaks: the whole one comes from the log.

import { CallRow, element } from "./call-row.mjs";

const REOPEN_MS = 2_000;
const OPEN_MS = 10_000;
const SEND_MS = 60_000;
/** The status for: there is no conversation (any more). */
const NO_CONVERSATION = 410;
const NEAR_END_PX = 80;

const byId = (id) => document.getElementById(id);
const [log, main, state, problem, text] = [byId("log"), document.querySelector("main"), byId("state"), byId("problem"), byId("text")];
const [sendButton, stopButton, newButton] = [byId("send"), byId("stop"), byId("new")];

/** Rows of the log by the id of their event. P1 */
const rows = new Map();
/** What a call came to may be known before its row: by the call's id. */
const calls = new Map();
const done = new Set();
let [source, reopening, status, isOpen, isSending] = [null, null, "idle", false, false];
/** The key of the message in the composer: sending it once more, after an answer was lost, says it once. */
let draft = null;
/** Which conversation is on the page. */
let conversation = null;
/** Did the last request fail for that? */
let isConversationMissing = false;
/** Called when the stream is open. */
let onOpen = null;

connect();

function connect() {
  clearTimeout(reopening);
  source?.close();
  forgetTyping();
  setOpen(false);
  const opened = new EventSource("events");
  source = opened;
  opened.onmessage = ({ data }) => {
    if (source === opened) show(JSON.parse(data));
  };
  opened.onerror = () => {
    if (source !== opened) return;
    setOpen(false);
    forgetTyping();
    // The browser comes back by itself, unless it was answered with an error.
    if (opened.readyState === EventSource.CLOSED) reopening = setTimeout(connect, REOPEN_MS);
  };
}

function disconnect() {
  clearTimeout(reopening);
  source?.close();
  source = null;
}

function show(item) {
  const wasAtEnd = main.scrollHeight - main.scrollTop - main.clientHeight < NEAR_END_PX;
  shown(item);
  byId("empty").hidden = rows.size > 0 || !isOpen;
  if (wasAtEnd) main.scrollTop = main.scrollHeight;
}

function shown(item) {
  switch (item.type) {
    case "conversation":
      // Another tab may have begun a new one.
      if (conversation !== item.id) clear();
      conversation = item.id;
      return;
    case "none":
      disconnect();
      clear();
      return setOpen(true);
    case "gone":
      disconnect();
      note("gone", "This conversation is no longer there. The next message starts a new one.");
      setStatus("ended");
      return setOpen(true);
    case "link":
      if (!item.isOpen) forgetTyping();
      return setOpen(item.isOpen);
    case "delta":
      return type(item);
    case "dropped":
      return forgetTyping();
    case "status":
      return setStatus(item.status);
    case "user":
      return showUser(item);
    case "agent":
      return showAgent(item);
    case "call":
      return once(item.id, () => callRow(item.id).describe(item));
    case "verdict":
      return once(item.id, () => callRow(item.callId).decide(item.isAllowed));
    case "result":
      return once(item.id, () => callRow(item.callId).finish(item));
    case "interrupt":
      return once(item.id, () => note(item.id, "You stopped the agent."));
    case "problem":
      return once(item.id, () => note(item.id, item.text, "problem"));
  }
}

function clear() {
  conversation = null;
  for (const known of [rows, calls, done]) known.clear();
  log.replaceChildren();
  setStatus("idle");
}

/** P1 */
function once(id, doing) {
  if (done.has(id)) return;
  done.add(id);
  doing();
}

function showUser({ id, text: words, isWaiting }) {
  if (done.has(id)) return;
  if (!isWaiting) done.add(id);
  const row = rows.get(id) ?? addRow(id, "words user");
  row.textContent = words;
  row.classList.toggle("waiting", isWaiting);
  // It takes its place when the agent takes it up.
  if (!isWaiting) log.append(row);
}

function type({ id, text: words }) {
  if (done.has(id)) return;
  const row = rows.get(id) ?? addRow(id, "words agent typing");
  // Read out when it is whole, not word by word.
  row.setAttribute("aria-busy", "true");
  row.append(words);
}

function showAgent({ id, text: words }) {
  once(id, () => {
    const row = rows.get(id) ?? addRow(id, "words agent");
    row.classList.remove("typing");
    row.removeAttribute("aria-busy");
    row.textContent = words;
  });
}

/** P3 */
function forgetTyping() {
  for (const [id, row] of rows) {
    if (!row.classList.contains("typing")) continue;
    row.remove();
    rows.delete(id);
  }
}

function note(id, words, kind = "") {
  (rows.get(id) ?? addRow(id, `note ${kind}`)).textContent = words;
}

function addRow(id, className) {
  const row = element("li", className);
  rows.set(id, row);
  log.append(row);
  return row;
}

function callRow(id) {
  const there = calls.get(id);
  if (there) return there;
  const row = new CallRow(
    addRow(id, "call"),
    (isAllowed) => post("confirm", { callId: id, isAllowed }),
    () => text.focus(),
  );
  calls.set(id, row);
  return row;
}

function setOpen(value) {
  isOpen = value;
  if (isOpen) onOpen?.();
  showState();
}

function setStatus(value) {
  status = value;
  showState();
}

function showState() {
  const words = {
    running: "The agent is working …",
    idle: "Ready",
    asking: "The agent is waiting for your answer",
    ended: "This conversation is over",
  };
  state.textContent = isOpen ? words[status] : "Connecting …";
  stopButton.disabled = status !== "running" && status !== "asking";
  sendButton.disabled = isSending || status === "asking";
}

byId("composer").addEventListener("submit", async (event) => {
  event.preventDefault();
  const words = text.value.trim();
  if (words === "" || sendButton.disabled) return;
  if (draft?.words !== words) draft = { words, key: crypto.randomUUID() };
  isSending = true;
  showState();
  if (await say(draft)) {
    draft = null;
    // Nobody stops people from writing on in the meantime.
    if (text.value.trim() === words) text.value = "";
  }
  isSending = false;
  showState();
});

async function say({ words, key }) {
  if (source !== null) {
    const isSaid = await post("messages", { text: words, key });
    if (isSaid || !isConversationMissing) return isSaid;
  }
  return (await begin(key)) && (await post("messages", { text: words, key }));
}

/** A conversation, and its stream before the first message: a stream that opens later has no part of an answer that is being written. */
async function begin(key) {
  if (!(await post("conversation", { key }))) return false;
  const opened = new Promise((resolve) => {
    onOpen = resolve;
  });
  connect();
  await Promise.race([opened, new Promise((resolve) => setTimeout(resolve, OPEN_MS))]);
  return true;
}

text.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  byId("composer").requestSubmit();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !stopButton.disabled) stopButton.click();
});
stopButton.addEventListener("click", () => void post("interrupt", { key: crypto.randomUUID() }));
newButton.addEventListener("click", async () => {
  if (!(await post("new", {}))) return;
  clear();
  connect();
  text.focus();
});

/** False: it was not done, and the page says why. */
async function post(path, body) {
  problem.hidden = true;
  isConversationMissing = false;
  try {
    const answer = await fetch(path, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
      signal: AbortSignal.timeout(SEND_MS),
    });
    if (answer.ok) return true;
    isConversationMissing = answer.status === NO_CONVERSATION;
    problem.textContent = (await answer.json()).message;
  } catch {
    problem.textContent = "The server can't be reached. Try again in a moment.";
  }
  problem.hidden = false;
  return false;
}
