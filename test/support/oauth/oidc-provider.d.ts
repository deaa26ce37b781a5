// What is used here of oidc-provider, which comes without declarations.

declare module "oidc-provider" {
  import type { IncomingMessage, ServerResponse } from "node:http";

  interface Client {
    readonly clientId: string;
  }
  interface Grant {
    addOIDCScope(scope: string): void;
    save(): Promise<string>;
  }
  interface RefreshToken {
    save(): Promise<string>;
  }

  export default class Provider {
    constructor(issuer: string, configuration: Readonly<Record<string, unknown>>);
    callback(): (request: IncomingMessage, response: ServerResponse) => void;
    readonly Client: { find(id: string): Promise<Client | undefined> };
    readonly AccessToken: { find(token: string): Promise<object | undefined> };
    readonly Grant: new (claims: {
      readonly accountId: string;
      readonly clientId: string;
    }) => Grant;
    readonly RefreshToken: new (claims: {
      readonly accountId: string;
      readonly client: Client;
      readonly grantId: string;
      readonly scope: string;
      readonly gty: string;
    }) => RefreshToken;
  }
}
