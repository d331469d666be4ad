/** The signed-in user. */

import { signal } from "@preact/signals";

import { ApiError, get, listenForUnauthorized, queryString, setCsrfToken, setOrganization, write } from "../api/client";

export type Role = "viewer" | "editor" | "owner" | "operator";

export interface Organization {
  id: string;
  name: string;
}

export interface Session {
  user: string;
  role: Role;
  organization: Organization | null;
  /** Those that an operator can choose; null for other users. */
  organizations: readonly Organization[] | null;
  csrfToken: string;
}

export type SessionState = { state: "unknown" } | { state: "signedOut" } | { state: "signedIn"; session: Session };

const ORDER: readonly Role[] = ["viewer", "editor", "owner", "operator"];
const SESSION = "/api/session";
/** In an address, and in what the browser keeps for a tab. */
const CHOSEN = "organization";

export const sessionState = signal<SessionState>({ state: "unknown" });

/** Take the organization that an operator has chosen in this tab, which an address names once: to be called before the
 * router starts. */
export function readChosenOrganization(): void {
  const address = new URL(location.href);
  const given = address.searchParams.get(CHOSEN);
  if (given !== null) {
    sessionStorage.setItem(CHOSEN, given);
    address.searchParams.delete(CHOSEN);
    history.replaceState(null, "", address);
  }
  setOrganization(sessionStorage.getItem(CHOSEN));
}

/** Show another organization, unless there are unsaved changes that the user stays for. */
export function chooseOrganization(id: string): void {
  location.assign(`/overview${queryString({ [CHOSEN]: id })}`);
}

/** Find out who is signed in. Throws `ApiError` if the server does not answer. */
export async function restoreSession(): Promise<void> {
  listenForUnauthorized(() => {
    sessionState.value = { state: "signedOut" };
  });
  try {
    begin(await get<Session>(SESSION));
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 401) throw error;
    sessionState.value = { state: "signedOut" };
  }
}

export async function signIn(username: string, password: string): Promise<void> {
  await write("POST", SESSION, { username, password });
  begin(await get<Session>(SESSION));
}

export async function signOut(everywhere: boolean): Promise<void> {
  await write("DELETE", everywhere ? `${SESSION}?all=true` : SESSION);
  sessionState.value = { state: "signedOut" };
}

/** Set the password of the user whom a one-time link belongs to, who is then signed in. */
export async function setPassword(token: string, password: string): Promise<Session> {
  await write("POST", "/api/password", { token, password });
  const session = await get<Session>(SESSION);
  begin(session);
  return session;
}

export function hasRole(least: Role): boolean {
  const { value } = sessionState;
  return value.state === "signedIn" && ORDER.indexOf(value.session.role) >= ORDER.indexOf(least);
}

function begin(session: Session): void {
  setCsrfToken(session.csrfToken);
  setOrganization(session.role === "operator" ? (session.organization?.id ?? null) : null);
  sessionState.value = { state: "signedIn", session };
}
