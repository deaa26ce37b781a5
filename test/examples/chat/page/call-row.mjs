// One call of a tool on the page: what is called, what it needs, what it came to. Text from outside is only ever set as text.

/** A call: what is called, what it needs, what it came to. */
export class CallRow {
  #row;
  #send;
  #moveOn;
  #title = element("b");
  #state = element("span");
  #input = element("pre");
  #buttons = element("div", "buttons");
  #isOver = false;
  /** Null: nobody has decided. */
  #isAllowed = null;
  #wasUsed = false;

  /** `decide(isAllowed)` sends it and says whether that was done; `moveOn()` is called when buttons that somebody was at go away. */
  constructor(row, decide, moveOn) {
    this.#row = row;
    this.#send = decide;
    this.#moveOn = moveOn;
    const heading = element("h2");
    heading.append(this.#title, this.#state);
    this.#row.append(heading, this.#input, this.#buttons);
  }

  describe({ name, input, needs }) {
    this.#title.textContent = name;
    this.#input.textContent = inputText(input);
    if (this.#isOver) return;
    this.#state.textContent = "running …";
    if (needs !== "permission" || this.#isAllowed !== null) return;
    this.#state.textContent = "may it run?";
    this.#row.classList.add("asks");
    this.#buttons.setAttribute("role", "group");
    this.#buttons.setAttribute("aria-label", `May ${name} run?`);
    this.#buttons.append(this.#button("Allow", "allow", true), this.#button("Deny", "deny", false));
  }

  decide(isAllowed) {
    this.#isAllowed = isAllowed;
    this.#close();
    if (!this.#isOver) this.#state.textContent = isAllowed ? "allowed, running …" : "denied";
  }

  finish({ text: words, isError }) {
    this.#isOver = true;
    this.#close();
    this.#row.classList.add(isError ? "failed" : "done");
    this.#state.textContent = this.#isAllowed === false ? "denied" : isError ? "failed" : "done";
    const details = element("details");
    const summary = element("summary");
    const output = element("pre");
    summary.textContent = "Result";
    output.textContent = words === "" ? "(nothing)" : words;
    details.open = words.length < 1_000;
    details.append(summary, output);
    this.#row.append(details);
  }

  #close() {
    const hadFocus = this.#wasUsed || this.#buttons.contains(document.activeElement);
    this.#buttons.replaceChildren();
    this.#row.classList.remove("asks");
    // Who was at a button that is no more goes on where one writes.
    if (hadFocus) this.#moveOn();
    this.#wasUsed = false;
  }

  #button(label, className, isAllowed) {
    const button = element("button", className);
    button.type = "button";
    button.textContent = label;
    button.addEventListener("click", async () => {
      const buttons = [...this.#buttons.children];
      this.#wasUsed = true;
      for (const one of buttons) one.disabled = true;
      if (!(await this.#send(isAllowed))) for (const one of buttons) one.disabled = false;
    });
    return button;
  }
}

function inputText(input) {
  if (typeof input !== "object" || input === null) return "";
  const entries = Object.entries(input);
  const [only] = entries;
  if (entries.length === 1 && typeof only[1] === "string") return only[1];
  return entries.length === 0 ? "" : JSON.stringify(input, null, 2);
}

export function element(tag, className = "") {
  const made = document.createElement(tag);
  made.className = className;
  return made;
}
