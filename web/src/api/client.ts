/** Requests to the server: JSON both ways, the session's cookie, the CSRF token, and the server's errors. */

import type { components } from "./schema";

export type Schemas = components["schemas"];

/** A field of a request and what is wrong with it. */
export interface FieldProblem {
  field: string;
  message: string;
}

export interface Page<T> {
  data: T[];
  pagination: Schemas["Pagination"];
}

export type Query = Record<string, string | number | boolean | null | undefined>;

/** The server's refusal of a request. `status` 0: the server did not answer. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly details: readonly FieldProblem[] = [],
  ) {
    super(message);
  }
}

interface Credentials {
  csrfToken: string;
  /** The organization that an operator has chosen. */
  organization: string | null;
}

const credentials: Credentials = { csrfToken: "", organization: null };
let onUnauthorized: () => void = () => {};

export function setCsrfToken(token: string): void {
  credentials.csrfToken = token;
}

export function setOrganization(id: string | null): void {
  credentials.organization = id;
}

/** `listener` is called when the session has ended. */
export function listenForUnauthorized(listener: () => void): void {
  onUnauthorized = listener;
}

export async function get<T>(path: string, query: Query = {}, signal?: AbortSignal): Promise<T> {
  return (await send<{ data: T }>("GET", path + queryString(query), undefined, signal)).data;
}

export async function getPage<T>(path: string, query: Query = {}, signal?: AbortSignal): Promise<Page<T>> {
  return send<Page<T>>("GET", path + queryString(query), undefined, signal);
}

export async function write<T>(method: "POST" | "PATCH" | "DELETE", path: string, body?: unknown): Promise<T> {
  return (await send<{ data: T }>(method, path, body))?.data;
}

export function queryString(query: Query): string {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return given.length === 0 ? "" : `?${new URLSearchParams(given.map(([name, value]) => [name, String(value)]))}`;
}

async function send<T>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  const headers = new Headers({ Accept: "application/json" });
  if (method !== "GET") headers.set("X-CSRF-Token", credentials.csrfToken);
  if (credentials.organization !== null) headers.set("X-Organization", credentials.organization);
  const request: RequestInit = { method, headers, credentials: "same-origin", redirect: "error" };
  if (body instanceof FormData) {
    request.body = body;
  } else if (body !== undefined) {
    headers.set("Content-Type", "application/json");
    request.body = JSON.stringify(body);
  }
  if (signal) request.signal = signal;
  const response = await fetch(path, request).catch((error: unknown) => {
    if (signal?.aborted) throw error;
    throw new ApiError(0, "");
  });
  if (response.status === 204) return undefined as T;
  const answer: unknown = await response.json().catch(() => null);
  if (response.ok) return answer as T;
  const { error, details } = (answer ?? {}) as { error?: string; details?: FieldProblem[] };
  if (response.status === 401 && path !== "/api/session") onUnauthorized();
  throw new ApiError(response.status, error ?? response.statusText, details);
}
