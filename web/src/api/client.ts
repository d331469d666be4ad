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
    /** The seconds after which the request may be sent again. */
    readonly retryAfterS: number | null = null,
  ) {
    super(message);
  }
}

/** The most items of one page. */
const MAX_PAGE = 100;

interface Credentials {
  csrfToken: string;
  /** The organization that an operator has chosen. */
  organization: string | null;
}

/** What is done when the server does not take the credentials. Each resolves to whether a request may be sent again. */
export interface Recovery {
  /** The session is over. */
  onUnauthorized: () => Promise<boolean>;
  /** The CSRF token is that of another session. */
  onStaleToken: () => Promise<boolean>;
}

const SESSION = "/api/session";
const CSRF_HEADER = "X-CSRF-Token";
const credentials: Credentials = { csrfToken: "", organization: null };
const never = () => Promise.resolve(false);
let recovery: Recovery = { onUnauthorized: never, onStaleToken: never };

export function setCsrfToken(token: string): void {
  credentials.csrfToken = token;
}

export function setOrganization(id: string | null): void {
  credentials.organization = id;
}

export function setRecovery(given: Recovery): void {
  recovery = given;
}

export async function get<T>(path: string, query: Query = {}, signal?: AbortSignal): Promise<T> {
  return (await send<{ data: T }>("GET", path + queryString(query), undefined, signal)).data;
}

export async function getPage<T>(path: string, query: Query = {}, signal?: AbortSignal): Promise<Page<T>> {
  return send<Page<T>>("GET", path + queryString(query), undefined, signal);
}

/** All items of a list, page by page. */
export async function everything<T>(path: string, signal?: AbortSignal, query: Query = {}): Promise<T[]> {
  const found: T[] = [];
  for (;;) {
    const page = await getPage<T>(path, { ...query, limit: MAX_PAGE, offset: found.length }, signal);
    found.push(...page.data);
    if (page.data.length === 0 || found.length >= page.pagination.total) return found;
  }
}

export async function write<T>(
  method: "POST" | "PATCH" | "DELETE",
  path: string,
  body?: unknown,
  signal?: AbortSignal,
): Promise<T> {
  return (await send<{ data: T }>(method, path, body, signal))?.data;
}

/** A write that is sent even if the page goes away. */
export async function writeAtLeave(method: "POST", path: string): Promise<void> {
  const response = await request(method, path, undefined, undefined, {}, true);
  if (!response.ok) throw await refusal(response);
}

/** A search, whose results come without pages. */
export async function search<T>(path: string, body: unknown): Promise<T[]> {
  return (await send<{ results: T[] }>("POST", path, body)).results;
}

/** Save a response as a file under a name. */
export async function download(path: string, name: string): Promise<void> {
  const response = await request("GET", path);
  if (!response.ok) throw await refusal(response);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await response.blob());
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}

/** Open a response that is read as it comes. Throws `ApiError`. */
export async function openStream(
  path: string,
  headers: Record<string, string>,
  signal: AbortSignal,
): Promise<ReadableStream<Uint8Array>> {
  const response = await request("GET", path, undefined, signal, headers);
  if (!response.ok) throw await refusal(response);
  if (response.body === null) throw new ApiError(0, "");
  return response.body;
}

/** Send a form or a file as it is, and tell how much of it is sent (0 to 1). `signal` stops it. */
export async function upload<T>(
  path: string,
  body: FormData | File,
  onProgress: (share: number) => void,
  signal?: AbortSignal,
): Promise<T> {
  const send = () => uploadOnce(path, body, onProgress, signal);
  let response = await send();
  if (await mayRepeat(response, path)) response = await send();
  if (!response.ok) throw await refusal(response);
  return ((await response.json()) as { data: T }).data;
}

function uploadOnce(
  path: string,
  body: FormData | File,
  onProgress: (share: number) => void,
  signal: AbortSignal | undefined,
): Promise<Response> {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest(); // fetch does not tell the progress of a request
    request.open("POST", path);
    for (const [name, value] of requestHeaders("POST")) request.setRequestHeader(name, value);
    if (body instanceof File) request.setRequestHeader("Content-Type", "application/octet-stream");
    request.upload.onprogress = (event) => onProgress(event.lengthComputable ? event.loaded / event.total : 0);
    request.onerror = () => reject(new ApiError(0, ""));
    request.onabort = () => reject(new DOMException("", "AbortError"));
    request.onload = () =>
      resolve(new Response(request.responseText, { status: request.status, statusText: request.statusText }));
    signal?.addEventListener("abort", () => request.abort());
    request.send(body);
  });
}

/** The address of a media element, for which a browser takes no headers. */
export function mediaAddress(path: string, query: Query = {}): string {
  return path + queryString({ ...query, organization: credentials.organization });
}

/** The address of a WebSocket, for which a browser takes no headers. */
export function socketAddress(path: string): URL {
  const address = new URL(path, location.href);
  address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
  if (credentials.organization !== null) address.searchParams.set("organization", credentials.organization);
  return address;
}

export function queryString(query: Query): string {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return given.length === 0 ? "" : `?${new URLSearchParams(given.map(([name, value]) => [name, String(value)]))}`;
}

async function send<T>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  const response = await request(method, path, body, signal);
  if (!response.ok) throw await refusal(response);
  return (response.status === 204 ? undefined : await response.json()) as T;
}

function requestHeaders(method: string, more: Record<string, string> = {}): Headers {
  const headers = new Headers({ Accept: "application/json", ...more });
  if (method !== "GET") headers.set(CSRF_HEADER, credentials.csrfToken);
  if (credentials.organization !== null) headers.set("X-Organization", credentials.organization);
  return headers;
}

/** A request that was refused for its credentials is sent once more when there are new ones. */
async function request(
  method: string,
  path: string,
  body?: unknown,
  signal?: AbortSignal,
  more: Record<string, string> = {},
  keepalive = false,
): Promise<Response> {
  const send = () => requestOnce(method, path, body, signal, more, keepalive);
  const response = await send();
  return (await mayRepeat(response, path)) ? await send() : response;
}

async function requestOnce(
  method: string,
  path: string,
  body: unknown,
  signal: AbortSignal | undefined,
  more: Record<string, string>,
  keepalive: boolean,
): Promise<Response> {
  const headers = requestHeaders(method, more);
  const options: RequestInit = { method, headers, credentials: "same-origin", redirect: "error", keepalive };
  if (body instanceof FormData) {
    options.body = body;
  } else if (body !== undefined) {
    headers.set("Content-Type", "application/json");
    options.body = JSON.stringify(body);
  }
  if (signal) options.signal = signal;
  return await fetch(path, options).catch((error: unknown) => {
    if (signal?.aborted) throw error;
    throw new ApiError(0, "");
  });
}

async function mayRepeat(response: Response, path: string): Promise<boolean> {
  if (response.status === 401 && path !== SESSION) return await recovery.onUnauthorized();
  if (response.status !== 403) return false;
  const { details } = await refusal(response.clone());
  return details.some(({ field }) => field === CSRF_HEADER) && (await recovery.onStaleToken());
}

async function refusal(response: Response): Promise<ApiError> {
  const answer: unknown = await response.json().catch(() => null);
  const { error, details } = (answer ?? {}) as { error?: string; details?: FieldProblem[] };
  const wait = response.headers.get("Retry-After");
  return new ApiError(response.status, error ?? response.statusText, details, wait === null ? null : Number(wait));
}
