/** The signed-in user. */

import { signal } from "@preact/signals";

import { ApiError, get, queryString, setCsrfToken, setOrganization, setRecovery, write } from "../api/client";

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
/** The signed-in user's session is over: the page stays as it is until the user has signed in again. */
export const sessionIsOver = signal(false);

/** Tells the other tabs of the browser, which share its cookie, of a new session. */
const newSessions = new BroadcastChannel("session");
/** Requests that wait for the user to sign in again. */
const waiting: ((mayRepeat: boolean) => void)[] = [];

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
  setRecovery({ onUnauthorized: waitForSignIn, onStaleToken: readSession });
  newSessions.onmessage = () => void readSession().catch(ignoreRefusal);
  try {
    begin(await get<Session>(SESSION));
  } catch (error) {
    if (!isSignedOut(error)) throw error;
    sessionState.value = { state: "signedOut" };
  }
}

export async function signIn(username: string, password: string): Promise<void> {
  await write("POST", SESSION, { username, password });
  await readSession();
  newSessions.postMessage(null);
}

/** End the session, which may be over already, or all sessions of the user. Throws `ApiError`. */
export async function signOut(everywhere: boolean): Promise<void> {
  try {
    await write("DELETE", everywhere ? `${SESSION}?all=true` : SESSION);
  } catch (error) {
    if (everywhere || !isSignedOut(error)) throw error;
  }
  sessionState.value = { state: "signedOut" };
}

/** Set the password of the user whom a one-time link belongs to, who is then signed in. */
export async function setPassword(token: string, password: string): Promise<Session> {
  await write("POST", "/api/password", { token, password });
  const session = await get<Session>(SESSION);
  begin(session);
  newSessions.postMessage(null);
  return session;
}

export function hasRole(least: Role): boolean {
  const { value } = sessionState;
  return value.state === "signedIn" && ORDER.indexOf(value.session.role) >= ORDER.indexOf(least);
}

/** Go on with the session that the browser has now. Another user or organization than the page shows: load the page
 * anew. Returns whether the page stays. */
async function readSession(): Promise<boolean> {
  const session = await get<Session>(SESSION);
  const { value } = sessionState;
  if (value.state === "signedIn" && !isSame(value.session, session)) {
    location.reload();
    return false;
  }
  begin(session);
  return true;
}

function isSame(one: Session, other: Session): boolean {
  return one.user === other.user && one.organization?.id === other.organization?.id;
}

function waitForSignIn(): Promise<boolean> {
  if (sessionState.value.state !== "signedIn") return Promise.resolve(false);
  sessionIsOver.value = true;
  return new Promise((resolve) => waiting.push(resolve));
}

function begin(session: Session): void {
  setCsrfToken(session.csrfToken);
  setOrganization(session.role === "operator" ? (session.organization?.id ?? null) : null);
  sessionState.value = { state: "signedIn", session };
  if (!sessionIsOver.value) return;
  sessionIsOver.value = false;
  for (const resolve of waiting.splice(0)) resolve(true);
}

function isSignedOut(error: unknown): boolean {
  return error instanceof ApiError && error.status === 401;
}

function ignoreRefusal(error: unknown): void {
  if (!(error instanceof ApiError)) throw error;
}
