// The file systems that a virtual shell sees: folders of the disk, and /dev.
//
//   V7  Changes to one folder happen one after the other. The interpreter has a queue of its own for that, but it starts a waiting change inside
//       the command that ended before it, and where that one is already over the change never comes to its end. So none ever waits there.

import { InMemoryFs, ReadWriteFs } from "just-bash";

type Args<K extends "writeFile" | "appendFile" | "mkdir" | "rm" | "cp" | "mv" | "chmod" | "symlink" | "link" | "utimes"> = Parameters<ReadWriteFs[K]>;

/** V7 */
export class DiskFs extends ReadWriteFs {
  #last: Promise<unknown> = Promise.resolve();

  override writeFile(...args: Args<"writeFile">): Promise<void> {
    return this.#alone(() => super.writeFile(...args));
  }

  override appendFile(...args: Args<"appendFile">): Promise<void> {
    return this.#alone(() => super.appendFile(...args));
  }

  override mkdir(...args: Args<"mkdir">): Promise<void> {
    return this.#alone(() => super.mkdir(...args));
  }

  override rm(...args: Args<"rm">): Promise<void> {
    return this.#alone(() => super.rm(...args));
  }

  override cp(...args: Args<"cp">): Promise<void> {
    return this.#alone(() => super.cp(...args));
  }

  override mv(...args: Args<"mv">): Promise<void> {
    return this.#alone(() => super.mv(...args));
  }

  override chmod(...args: Args<"chmod">): Promise<void> {
    return this.#alone(() => super.chmod(...args));
  }

  override symlink(...args: Args<"symlink">): Promise<void> {
    return this.#alone(() => super.symlink(...args));
  }

  override link(...args: Args<"link">): Promise<void> {
    return this.#alone(() => super.link(...args));
  }

  override utimes(...args: Args<"utimes">): Promise<void> {
    return this.#alone(() => super.utimes(...args));
  }

  async #alone(change: () => Promise<void>): Promise<void> {
    const before = this.#last;
    let end = (): void => {};
    this.#last = new Promise<void>((resolve) => {
      end = resolve;
    });
    try {
      await before;
      await change();
    } finally {
      end();
    }
  }
}

/** /dev: what is written there is gone, and reading gives nothing. */
export class DeviceFs extends InMemoryFs {
  constructor() {
    super();
    this.writeFileSync("/null", "");
  }

  override async writeFile(): Promise<void> {}

  override async appendFile(): Promise<void> {}
}
