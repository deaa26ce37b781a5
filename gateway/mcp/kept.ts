// Where a door for MCP clients keeps what must be the same on every node: documents of the installation's own workspace.

/** No tenant's: its documents are read by the door alone. */
export const WORKSPACE = "manyhands";
