/** The values of a phone number's form, and the request that saves them. */

import { changes, lines } from "../../app/draft";
import type { PhoneNumber } from "./phone_numbers";

export interface NumberValues {
  number: string;
  name: string;
  agentId: string;
  sipMode: string;
  sipIp: string;
  sipPort: number | null;
  sipProtocol: string;
  sipQualifySeconds: number | null;
  sipInboundAuth: boolean;
  sipProxy: string;
  sipRegisterTransport: string;
  sipUsername: string;
  sipAuthUser: string;
  sipPassword: string;
  sipOutboundProxy: string;
  sipSources: string;
  sipAllowRedirect: boolean;
  sipAllowRefer: boolean;
  outboundPrefixes: string;
  outboundPerMinute: number | null;
  sipTransferMethod: string;
  sipTransferCallerId: string;
}

export const NEW_NUMBER: NumberValues = {
  number: "",
  name: "",
  agentId: "",
  sipMode: "",
  sipIp: "",
  sipPort: null,
  sipProtocol: "",
  sipQualifySeconds: 60,
  sipInboundAuth: false,
  sipProxy: "",
  sipRegisterTransport: "",
  sipUsername: "",
  sipAuthUser: "",
  sipPassword: "",
  sipOutboundProxy: "",
  sipSources: "",
  sipAllowRedirect: false,
  sipAllowRefer: false,
  outboundPrefixes: "",
  outboundPerMinute: null,
  sipTransferMethod: "auto",
  sipTransferCallerId: "own",
};

export function valuesOf(number: PhoneNumber): NumberValues {
  return {
    ...NEW_NUMBER,
    number: number.number,
    name: number.name ?? "",
    agentId: number.agentId ?? "",
    sipMode: number.sipMode ?? "",
    sipIp: number.sipIp ?? "",
    sipPort: number.sipPort,
    sipProtocol: number.sipProtocol ?? "",
    sipQualifySeconds: number.sipQualifySeconds,
    sipInboundAuth: number.sipInboundAuth,
    sipProxy: number.sipProxy ?? "",
    sipRegisterTransport: number.sipRegisterTransport ?? "",
    sipUsername: number.sipUsername ?? "",
    sipAuthUser: number.sipAuthUser ?? "",
    sipOutboundProxy: number.sipOutboundProxy ?? "",
    sipSources: number.sipSources.join("\n"),
    sipAllowRedirect: number.sipAllowRedirect,
    sipAllowRefer: number.sipAllowRefer,
    outboundPrefixes: (number.outboundPrefixes ?? []).join("\n"),
    outboundPerMinute: number.outboundPerMinute,
    sipTransferMethod: number.sipTransferMethod,
    sipTransferCallerId: number.sipTransferCallerId,
  };
}

/** The body of the request: what differs from the stored values, `null` for those of a new number. */
export function bodyOf(values: NumberValues, stored: NumberValues | null): Record<string, unknown> {
  const body: Record<string, unknown> = changes(stored ?? NEW_NUMBER, values);
  if (typeof body.sipSources === "string") body.sipSources = lines(body.sipSources);
  if (typeof body.outboundPrefixes === "string") body.outboundPrefixes = lines(body.outboundPrefixes);
  if (Array.isArray(body.outboundPrefixes) && body.outboundPrefixes.length === 0) body.outboundPrefixes = null;
  for (const [name, value] of Object.entries(body)) {
    if (value !== "") continue;
    if (name === "sipPassword") delete body[name];
    else body[name] = null;
  }
  if ("sipQualifySeconds" in body) body.sipQualifySeconds ??= 0;
  return body;
}
