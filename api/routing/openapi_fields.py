"""Descriptions and examples of the properties of schemas, for the OpenAPI document.

A property's own description and example come first, then those of the tables below, by `Schema.property` or by the name
of the property alone. A response takes descriptions from the request body that sets the same property. Examples of
objects and lists are made of those of their properties."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

EXAMPLE_ID: Final = "8f0c4f6e-2f1d-4d0a-9a57-3c1b6e0d7a21"
_INSTANT: Final = "2026-11-21T05:00:00.123Z"
_INSTANT_AFTER: Final = "2026-11-21T05:01:12.480Z"

DESCRIPTIONS: Final[Mapping[str, str]] = {
    "id": "Identifies the object; assigned by the server",
    "keepRecordingsDays": "Days until recordings are deleted; null: never",
    "organizationId": "Organization of the API key",
    "agentId": "Agent of the call, the number or the document",
    "phoneNumberId": "Phone number whose trunk carries the call",
    "createdAt": "When it was stored, UTC",
    "Agent.version": "Number of the version: 1, and 1 more with each save that changed a field",
    "updatedAt": "When it was last changed, UTC",
    "name": "Name in lists",
    "description": "Free text for readers of the list",
    "status": "State at the time of the response",
    "pbx": "Which PBX",
    "dialledNumber": "User of the URI that was dialled",
    "callerNumber": "User of the URI in From",
    "ToolTrialView.ok": "True if the tool answered with a status of 200 to 299",
    "ToolTrialView.content": "What the agent's model gets, with secrets masked; without success, why",
    "listCalls.status": "Calls with this status",
    "listCalls.direction": "Calls of this direction",
    "exportCalls.status": "Calls with this status",
    "exportCalls.direction": "Calls of this direction",
    "metadata": "Values of the client's own; the server does not use them",
    "provider": "`sip`, or the preset of a carrier",
    "Call.provider": "That of the phone number; `web` for a test call from a browser, `chat` for a chat",
    "CallListItem.provider": "That of the phone number; `web` for a test call from a browser, `chat` for a chat",
    "voiceSpeed": "Speed of speech; 1 is the voice's own",
    "firstSpeaker": "Who speaks first after the answer; `agent` says the greeting",
    "maxCallDurationSeconds": "Longest duration from the answer, s; the call is then ended",
    "backgroundSoundVolume": "Level of the background sound, 0 to 1",
    "postCallWebhookSecretSet": "Whether a secret is stored; the secret itself is never returned",
    "warnings": "Problems that do not prevent calls, such as a language that no installed model speaks",
    "Capacity.warnings": "What is wrong with the server now; empty if nothing is",
    "ServerWarning.message": "What is wrong",
    # Calls
    "direction": "`inbound`: a peer called; `outbound`: the API placed the call",
    "Call.status": "State of the call; after `completed`, `failed` or `no_answer` it does not change",
    "CallListItem.status": "State of the call; after `completed`, `failed` or `no_answer` it does not change",
    "customerNumber": "Number of the party that is not the agent",
    "recordingUrl": "Address of the stereo WAV file, signed for API keys, not for users; null without a recording",
    "endedReason": "Why the call ended; null before",
    "contextVariables": "Values of the agent's placeholders in this call",
    "startedAt": "When the call or attempt was answered or began; null if it was not",
    "endedAt": "When it ended; null before",
    "transcript": "What was said, in the order of time",
    "codec": "Codec of the audio from and to the peer",
    "received": "Audio from the peer",
    "maxRoundTripMs": "Longest round trip time by RTCP, ms",
    "q850Text": "Text of the cause; null without one",
    "callId": "Call that this belongs to",
    "content": "The words",
    "lost": "Packets that were expected and did not come",
    "lossPercent": "Lost packets, % of the expected ones",
    "maxJitterMs": "Largest interarrival jitter (RFC 3550), ms",
    "duplicate": "Packets that came more than once",
    "reordered": "Packets that came after later ones",
    "at": "When the message was received or sent, UTC",
    "cseq": "Number of the CSeq header",
    "turns": "Turns of the conversation with their times",
    "responseGap": "Response gaps of the turns: from the end of the caller's speech to the agent's first audio",
    "totals": "Sums over all periods",
    "transfers": "Transfers of the call with their times",
    "attempts": "Attempts to reach the target, in the order of time",
    "transferType": "Mode of the transfer",
    "targetName": "Name of the target among the agent's transferTargets",
    "reason": "Why the caller is transferred, as the target is told; null without one",
    "summary": "What the target is told about the call; null without it",
    "requestedBy": "`agent`: its model called the tool; `api`: a client asked",
    "TransferState.status": "State that the transfer reached",
    "TransferStateTime.status": "State that the transfer reached",
    "documentId": "Knowledge document that the passage is from",
    # Knowledge and sounds
    "filename": "Name of the uploaded file",
    "mimeType": "Media type of the file",
    "KnowledgeDocument.status": "`pending`, `processing`, then `ready` or `failed`",
    "durationSeconds": "Length of the sound, s",
    # Models
    "LanguageModel.provider": "Engine that runs the model",
    "contextLength": "Largest number of tokens of instructions and conversation together",
    "isDefault": "Whether agents without a model of their own use this one",
    "Voice.language": "Language of the voice, BCP 47; null if unknown",
    "engine": "Engine of the model; `openai`: it runs on another machine",
    "quality": "Quality, as the publisher of the voice names it; null if unknown",
    "sampleRate": "Sample rate of the voice, Hz, before it is resampled for a call",
    "sampleUrl": "Address of a short WAV file in this voice, with an expiring signature",
    "promptTokensPerSecond": "Tokens of prompts read per second, measured on this machine; null if not measured",
    "tokensPerSecond": "Tokens generated per second for one call, measured on this machine; null if not measured",
    "languages": "Languages that it recognizes, BCP 47; `*`: all, or unknown",
    "streaming": "Whether it has words while the caller speaks",
    "SpeechRecognizer.isDefault": "Whether it has the calls of agents without languageHint",
    "realTimeFactor": "Processor seconds for a second of audio, measured on this machine; null if not measured",
    # Numbers
    "number": "Telephone number: E.164 or an extension",
    "sipMode": "How the trunk reaches the PBX: by registration, or by the PBX's address",
    "sipPort": "Port of the PBX; null: that of the transport",
    "sipProtocol": "Transport to the PBX",
    "sipUsername": "User of the registration or of digest authentication",
    # Tools
    "type": "Kind of the value",
    "Tool.type": "Kind of the tool",
    "ToolCreate.type": "Kind of the tool",
    "ToolUpdate.type": "Kind of the tool",
    "config": "The HTTP request that the tool makes",
    "method": "HTTP method",
    "url": "Address that requests are sent to",
    "timeout": "Longest duration of the request, ms",
    "headers": "Headers of the request",
    "body": "Arguments that the model gives",
    "allowVariableHost": "Whether `{{variables}}` may be part of the host",
    "key": "Name of the header",
    "value": "Value of the header; hidden in responses",
    "required": "Whether the model must give the argument",
    "ToolCallItem.role": "Always `tool`",
    "durationMs": "How long it took, ms",
    # Webhooks
    "events": "Names of the events that are sent",
    "enabled": "Whether events are sent",
    # Errors and lists
    "Error.error": "What is wrong, for people",
    "message": "What is wrong with the field, for people",
    "total": "Number of items in all pages",
    "limit": "Largest number of items in a page",
    "offset": "Number of items before this page",
    "deleted": "Always true",
    "quota.name": "Name of the quota",
}
"""Descriptions of properties that have none of their own."""

EXAMPLES: Final[Mapping[str, Any]] = {
    "name": "Reception",
    "Organization.name": "Harbour office",
    "OrganizationQuota.name": "agents",
    "Organization.balance": 41.5,
    "Organization.quotas": [{"name": "agents", "used": 3, "allowed": 10000}],
    "keepRecordingsDays": 30,
    "keepTranscriptsDays": 90,
    "keepCallsDays": 400,
    "ApiKeyCreate.name": "Web shop",
    "ApiKey.name": "Web shop",
    "NewApiKey.name": "Web shop",
    "NewApiKey.key": "tk_1a2b3c4d_c2VjcmV0IG9mIHRoZSBoYXJib3VyIG9mZmljZQ",
    "UserCreate.name": "anna",
    "UserUpdate.name": "anna",
    "User.name": "anna",
    "InvitedUser.name": "anna",
    "UserCreate.role": "editor",
    "UserUpdate.role": "editor",
    "User.role": "editor",
    "InvitedUser.role": "editor",
    "User.state": "active",
    "InvitedUser.state": "invited",
    "InvitedUser.lastSignInAt": None,
    "link": "https://voice.example/welcome?token=c2VjcmV0IG9mIHRoZSBoYXJib3VyIG9mZmljZQ",
    "prefix": "tk_1a2b3c4d",
    "requestsPerMinute": 300,
    "description": "Answers the main number",
    "metadata": {"tenant": "harbour"},
    "provider": "sip",
    "message": "No installed model recognizes speech in Icelandic",
    "field": "languageHint",
    "websocketUrl": "wss://office.example/v1/calls/5b04ac7c-2be9-4887-97d5-5fafa43022f1/socket?ticket=bG9uZyBhbmQgcmFuZG9t",
    # Agents
    "systemPrompt": "You answer the telephone of the harbour office for {{caller}}.",
    "agentGreeting": "Harbour office, good day!",
    "holdMessage": "One moment, please, I am connecting you.",
    "holdMusicUrl": "https://office.example/hold.mp3",
    "knowledgeSearchInstructions": "Search for fees, opening hours and berths.",
    "languageHint": "en",
    "postCallWebhookUrl": "https://office.example/calls",
    "postCallWebhookSecret": "whsec_c2VjcmV0IG9mIHRoZSBoYXJib3VyIG9mZmljZQ==",
    "postCallWebhookEvents": ["call.completed"],
    "recordingAnnouncement": "This call is recorded.",
    "voicemailMessage": "This is the harbour office. Please call us back.",
    "ExtractionField.name": "berth_wanted",
    "ExtractionFieldView.name": "berth_wanted",
    "ExtractionField.description": "Whether the caller wants a berth",
    "ExtractionFieldView.description": "Whether the caller wants a berth",
    "TransferTarget.name": "Harbour master",
    "TransferTargetView.name": "Harbour master",
    "TransferTarget.description": "Berths, tides and complaints",
    "TransferTargetView.description": "Berths, tides and complaints",
    "TransferTarget.number": "100",
    "TransferTargetView.number": "100",
    "Agent.version": 3,
    "WebCallCreate.version": 3,
    "ChatCreate.version": 3,
    "ChatCreate.agent": {"agentGreeting": "Harbour office, good morning!"},
    "editTurn": 1,
    "ChatToolCall.result": "A berth of 12 metres is free on Friday.",
    "AgentVersion.version": 3,
    "AgentVersionDetail.version": 3,
    "agentVersion": 3,
    "author": "dashboard",
    "by": "anna",
    "changes": ["systemPrompt", "voiceSpeed"],
    "minTurnDuration": 200,
    "turnEndpointDelay": 300,
    "customerSilenceMs": 10000,
    # Calls
    "analysis": {"summary": "The caller reserved a berth.", "extractions": {"berth_wanted": True}, "error": None},
    "extractions": {"berth_wanted": True},
    "Call.status": "completed",
    "CallListItem.status": "completed",
    "listCalls.from": "2026-11-01T00:00:00Z",
    "listAuditEntries.from": "2026-11-01T00:00:00Z",
    "listAuditEntries.to": "2026-12-01T00:00:00Z",
    "listAuditEntries.actor": "anna",
    "action": "agent.update",
    "objectType": "agent",
    "AuditActor.type": "user",
    "AuditActor.name": "anna",
    "fields": ["systemPrompt", "voiceSpeed"],
    "clientAddress": "192.0.2.10",
    "detail": "version 3",
    "listCalls.to": "2026-12-01T00:00:00Z",
    "listCalls.endedReason": "busy",
    "listCalls.minResponseGapMs": 2000,
    "exportCalls.from": "2026-11-01T00:00:00Z",
    "exportCalls.to": "2026-12-01T00:00:00Z",
    "exportCalls.endedReason": "busy",
    "exportCalls.minResponseGapMs": 2000,
    "getStatistics.from": "2026-11-01T00:00:00Z",
    "getStatistics.until": "2026-12-01T00:00:00Z",
    "getStatistics.timeZone": "Europe/Berlin",
    "Statistics.from": "2026-11-01T00:00:00.000Z",
    "Statistics.until": "2026-12-01T00:00:00.000Z",
    "timeZone": "Europe/Berlin",
    "start": "2026-11-20T23:00:00.000Z",
    "end": "2026-11-21T23:00:00.000Z",
    "ResponseGap.turns": 4180,
    "p50Ms": 640,
    "p95Ms": 1210,
    "calls": 1045,
    "inbound": 981,
    "outbound": 64,
    "completed": 998,
    "failed": 11,
    "noAnswer": 36,
    "CallStatistics.turns": 4180,
    "StatisticsPeriod.turns": 4180,
    "interruptions": 212,
    "callsWithInterruptions": 170,
    "CallStatistics.durationSeconds": 75240,
    "StatisticsPeriod.durationSeconds": 75240,
    "CallStatistics.cost": 43.89,
    "StatisticsPeriod.cost": 43.89,
    "atMs": 1480,
    "attempt": 1,
    "callSid": "a84b4c76e66710",
    "calledNumber": "+4940123456",
    "node": "node1",
    "Node.name": "node1",
    "Node.url": "http://10.0.0.1:8080",
    "Node.version": "0.1.0",
    "Node.state": "up",
    "Node.calls": 12,
    "Node.capacity": 40,
    "lastSeenAt": _INSTANT_AFTER,
    "chunkCount": 42,
    "codec": "PCMU",
    "completionTokens": 38,
    "promptTokens": 412,
    "content": "A berth costs 20 euros a night.",
    "contextVariables": {"caller": "Ada"},
    "cost": 0.042,
    "cseq": 1,
    "customerNumber": "+4930654321",
    "declineReason": "in a meeting",
    "discardedMs": 20,
    "document": "Fees",
    "duplicate": 0,
    "durationMs": 184,
    "durationSeconds": 72,
    "endedAt": _INSTANT_AFTER,
    "error": "Call not found",
    "Analysis.error": None,
    "KnowledgeDocument.error": None,
    "WebhookAttempt.error": None,
    "foreign": 0,
    "from": "sip:100@192.0.2.10",
    "heardSeconds": 31.5,
    "jitterMs": 1.2,
    "ladder": "192.0.2.10 -> 198.51.100.5  INVITE\n192.0.2.10 <- 198.51.100.5  200 OK",
    "leftOut": 0,
    "lossPercent": 0.1,
    "lost": 4,
    "malformed": 0,
    "maxJitterMs": 8.4,
    "maxRoundTripMs": 21.0,
    "mos": 4.4,
    "state": "speaking",
    "partialTranscript": "I would like to",
    "turnEndMovedMs": -90,
    "ReplayTotals.turns": 4,
    "ReplayTotals.responseGapMs": {"median": 640, "p95": 910},
    "ReplayTotals.interruptions": 1,
    "ReplayTotals.endedTooEarly": 1,
    "pauses": 2,
    "resumes": 1,
    "ReplayDrop.count": 2,
    "ReplayDrop.reason": "short",
    "median": 310,
    "p95": 520,
    "minInterruptionDuration": 300,
    "frameActivationThreshold": 0.35,
    "postSpeechCooldown": 400,
    "ultravadEotThreshold": 0.1,
    "speculativeSilenceMs": 150,
    "fallbackSilenceMs": 3000,
    "sentLossPercent": 0.0,
    "sentMos": 4.4,
    "LiveCallDetails.durationSeconds": 42,
    "Capacity.calls": 3,
    "maxCalls": 100,
    "callsLeft": 97,
    "rejectionReason": None,
    "waitSeconds": 0.2,
    "maxWaitSeconds": 3.0,
    "capacity": 12,
    "slow": False,
    "part": "disk",
    "ServerWarning.message": "less than 1024 MiB are free",
    "offsetMs": 12,
    "outcome": "connected",
    "packets": 3600,
    "playedMs": 2140,
    "position": 3,
    "q850Cause": 16,
    "q850Text": "Normal call clearing",
    "query": "What does a berth cost?",
    "reason": "wants to complain about a berth",
    "reasonPhrase": "OK",
    "recordingUrl": f"https://voice.example/v1/calls/{EXAMPLE_ID}/recording?expires=1795000000&signature=3f1c",
    "sampleUrl": f"https://voice.example/v1/voices/{EXAMPLE_ID}/sample?expires=1795000000&signature=3f1c",
    "reordered": 0,
    "responseGapMs": 640,
    "roundTripMs": 18.5,
    "secondsPerPeak": 0.02,
    "Waveform.caller": [0.0, 0.31, 0.58],
    "Waveform.agent": [0.0, 0.0, 0.02],
    "score": 0.83,
    "title": "Asterisk",
    "configuration": "[trunkline]\ntype=endpoint\ncontext=from-trunkline",
    "problem": None,
    "source": "192.0.2.10",
    "dialledNumber": "701",
    "callerNumber": "+4930654321",
    "RefusedCall.statusCode": 404,
    "UnknownSource.address": "192.0.2.11",
    "UnknownSource.messages": 12,
    "RefusedCall.reason": "unknown number",
    "ToolTrialView.content": '{"free": 3}',
    "wordScore": 0.71,
    "meaningScore": 0.6,
    "words": ["berth", "cost"],
    "sipStatus": "registered",
    "TransferAttempt.sipStatus": 200,
    "TransferAttemptTimes.sipStatus": 200,
    "TransferCall.sipStatus": 200,
    "SipEnd.statusCode": 200,
    "statusCode": 200,
    "spokenCharacters": 214,
    "summary": "Ada asks for a refund of last night's fee.",
    "SipMessage.summary": "INVITE sip:700@198.51.100.5",
    "target": "Harbour master",
    "targetName": "Harbour master",
    "telephonySeconds": 72.0,
    "text": "INVITE sip:700@198.51.100.5 SIP/2.0",
    "transport": "udp",
    "turn": 1,
    "turnCount": 4,
    "eotProbability": 0.97,
    "speechStartMs": 1200,
    "speechEndMs": 2900,
    "turnEndMs": 3200,
    "textReadyMs": 3010,
    "firstTokenMs": 3290,
    "speechReadyMs": 3400,
    "agentStartMs": 3540,
    "agentEndMs": 5680,
    "interruptedMs": 4200,
    "startMs": 3220,
    "wordStartsMs": [3220, 3480, 3710],
    "endMs": 5400,
    "to": "+4930654321",
    "SipMessage.to": "sip:700@198.51.100.5",
    "number": "+4940123456",
    # Knowledge and sounds
    "fileBase64": "QSBiZXJ0aCBjb3N0cyAyMCBldXJvcyBhIG5pZ2h0Lg==",
    "fileSize": 31,
    "filename": "fees.txt",
    "mimeType": "text/plain",
    "BackgroundSoundCreate.filename": "harbour.wav",
    "BackgroundSoundCreate.mimeType": "audio/wav",
    "BackgroundSound.durationSeconds": 12.5,
    # Models
    "contextLength": 4096,
    "LanguageModel.provider": "llama.cpp",
    "Voice.language": "en-US",
    "engine": "flite",
    "SpeechRecognizer.engine": "pocketsphinx",
    "SpeechRecognizer.name": "pocketsphinx",
    "LanguageModel.name": "tiny-1b-q4",
    "quality": "medium",
    "sampleRate": 16000,
    "promptTokensPerSecond": 210.4,
    "tokensPerSecond": 24.8,
    "languages": ["en"],
    "realTimeFactor": 0.08,
    # Models of the machine
    "LocalModel.kind": "stt",
    "LocalModel.name": "kroko-en",
    "LocalModel.source": "listed",
    "LocalModel.licence": "CC-BY-SA-4.0",
    "LocalModel.languages": ["en"],
    "LocalModel.sizeBytes": 71053312,
    "LocalModel.files": "kroko-en",
    "LocalModel.hosts": ["huggingface.co"],
    "LocalModel.state": "not_installed",
    "LocalModel.stateDetail": "42 % is here",
    "LocalModel.missingEngine": None,
    "LocalModel.loaded": False,
    "LocalModel.inUse": None,
    "LocalModel.promptTokensPerSecond": None,
    "LocalModel.tokensPerSecond": None,
    "LocalModel.realTimeFactor": 0.042,
    "LocalModel.check": "passed",
    "LocalModel.checking": False,
    "LocalModel.problems": [],
    "LocalModel.download": {
        "state": "downloading",
        "receivedBytes": 29842391,
        "totalBytes": 71053312,
        "bytesPerSecond": 5242880,
        "problem": None,
    },
    "download.state": "downloading",
    "ModelDownload.state": "downloading",
    "receivedBytes": 29842391,
    "totalBytes": 71053312,
    "bytesPerSecond": 5242880,
    "ModelDownload.problem": None,
    "ModelImport.installed": ["reception"],
    "IncompleteModel.name": "kroko-en",
    "IncompleteModel.missingFiles": ["decoder.onnx"],
    "ModelImport.leftOut": [{"name": "kroko-de", "reason": "decoder.onnx is missing in it"}],
    "LeftOutModel.name": "kroko-de",
    "LeftOutModel.reason": "decoder.onnx is missing in it",
    "FolderImport.file": "reception.gguf",
    "FolderImport.name": "reception",
    "ImportableFile.file": "reception.gguf",
    "ImportableFile.sizeBytes": 428970080,
    "RemoteModelCreate.kind": "llm",
    "RemoteModelCreate.name": "gpu",
    "RemoteModelCreate.url": "https://gpu.example/v1",
    "RemoteModelCreate.model": "Qwen3-8B",
    "RemoteModelCreate.key": "sk-c2VjcmV0IG9mIHRoZSBoYXJib3Vy",
    "RemoteModelCreate.contextLength": 8192,
    "RemoteModelCreate.extra": {"temperature": 0.3},
    "connectSeconds": 1.0,
    "firstWordSeconds": 4.0,
    "betweenWordsSeconds": 3.0,
    "totalSeconds": 60.0,
    "RemoteModel.kind": "llm",
    "RemoteModel.name": "gpu",
    "RemoteModel.url": "https://gpu.example/v1",
    "RemoteModel.model": "Qwen3-8B",
    "RemoteModel.hasKey": True,
    "RemoteModel.contextLength": 8192,
    "RemoteModel.loaded": False,
    "RemoteModel.inUse": None,
    "RemoteModel.agents": 2,
    "RemoteModel.warnings": [],
    "RemoteVoice.name": "af_heart",
    "RemoteVoice.language": "en-US",
    "RemoteVoiceView.name": "af_heart",
    "RemoteVoiceView.language": "en-US",
    "RemoteRequest.problem": None,
    "RemoteModelTest.answer": "first token after 180 ms, 34 characters after 420 ms: Hello, how can I help you?",
    "RemoteModelTest.problem": None,
    "importModel.filename": "reception.gguf",
    "importModel.name": "reception",
    # Numbers
    "outboundPerMinute": 10,
    "outboundPrefixes": ["+49"],
    "provider_aAccountSid": "harbour-account",
    "provider_bAccountSid": "harbour-account",
    "provider_cAccountSid": "harbour-account",
    "provider_aAuthToken": "a-long-password",
    "provider_bAuthToken": "a-long-password",
    "provider_cAuthToken": "a-long-password",
    "sipAuthUser": "trunkline",
    "sipIp": "192.0.2.10",
    "sipOutboundProxy": "proxy.example.com",
    "sipPassword": "a-long-password",
    "sipPort": 5060,
    "sipProxy": "pbx.example.com",
    "sipQualifySeconds": 30,
    "sipSources": ["192.0.2.0/28"],
    "sipStatusDetail": "answers OPTIONS in 12 ms",
    "sipUsername": "trunkline",
    # Tools
    "key": "X-Api-Key",
    "value": "{{token}}",
    "url": "https://office.example/berths",
    "timeout": 5000,
    "Tool.name": "free_berths",
    "ToolCreate.name": "free_berths",
    "ToolUpdate.name": "free_berths",
    "ToolParameter.name": "nights",
    "ToolParameterView.name": "nights",
    "ToolTimes.name": "free_berths",
    "Tool.description": "Tells which berths are free",
    "ToolCreate.description": "Tells which berths are free",
    "ToolUpdate.description": "Tells which berths are free",
    "ToolParameter.description": "Number of nights",
    "ToolParameterView.description": "Number of nights",
    "arguments": {"nights": 2},
    "ToolCallItem.result": "Berth 12 is free for 2 nights.",
    # Webhooks
    "events": ["call.completed"],
    "responseBody": "ok",
    "responseStatus": 200,
    "secret": "whsec_c2VjcmV0IG9mIHRoZSBoYXJib3VyIG9mZmljZQ==",
    "Voice.name": "flite/slt",
    # Errors and lists
    "quota": {"name": "agents", "used": 10, "allowed": 10},
    "quota.name": "agents",
    "retryAfter": 12,
    "used": 10,
    "allowed": 10,
    "total": 128,
    "limit": 50,
    "offset": 0,
    "search": "reception",
    "expires": "1795000000",
    "signature": "3f1c9a",
    "Error.details": [{"field": "name", "message": "Must not be empty"}],
}
"""Examples of properties that have none of their own, and whose schema does not give one."""


def document_properties(schemas: dict[str, Any]) -> None:
    """Give every property of these component schemas a description and an example, where one is known."""
    for name, schema in schemas.items():
        _describe(name, schema, schemas)
    for name, schema in schemas.items():
        _exemplify(name, schema, schemas)


def known_description(path: str) -> str | None:
    """The description of a parameter `operation.name`; None if there is none."""
    owner, _, name = path.rpartition(".")
    text: str | None = _known(DESCRIPTIONS, owner, name)
    return text


def known_example(path: str, schema: dict[str, Any]) -> Any:
    """The example of a parameter `operation.name`; None if there is none."""
    example = _example(path, schema, {})
    return None if example is _UNKNOWN else example


def _describe(owner: str, schema: dict[str, Any], schemas: dict[str, Any]) -> None:
    for name, prop in schema.get("properties", {}).items():
        text = _of_request(owner, name, "description", schemas) or _known(DESCRIPTIONS, owner, name)
        if text is not None:
            prop.setdefault("description", text)
        _describe(name, prop, schemas)
        _describe(name, prop.get("items", {}), schemas)


def _exemplify(owner: str, schema: dict[str, Any], schemas: dict[str, Any]) -> None:
    for name, prop in schema.get("properties", {}).items():
        example = _example(f"{owner}.{name}", prop, schemas)
        if example is not _UNKNOWN:
            prop["example"] = example
        _exemplify(prop.get("title", name) if prop.get("title") in schemas else name, prop, schemas)
        _exemplify(name, prop.get("items", {}), schemas)


def _of_request(owner: str, name: str, what: str, schemas: dict[str, Any]) -> Any:
    """A description or default of the request body that sets the same property; None without one."""
    stem = owner.removesuffix("View").removesuffix("Update").removesuffix("OfVersion")
    requests = (schemas.get(each, {}) for each in (f"{stem}Create", f"{stem}Update", stem) if each != owner)
    found = (each.get("properties", {}).get(name, {}).get(what) for each in requests)
    return next((each for each in found if each is not None), None)


def _known(table: Mapping[str, Any], owner: str, name: str, default: Any = None) -> Any:
    return table.get(f"{owner}.{name}", table.get(name, default))


def _example(path: str, schema: dict[str, Any], schemas: dict[str, Any]) -> Any:
    """The example of a property `Schema.property`; `_UNKNOWN` if there is none."""
    if "example" in schema:
        return schema["example"]
    owner, _, name = path.rpartition(".")
    known = _known(EXAMPLES, owner, name, _UNKNOWN)
    if known is not _UNKNOWN:
        return known
    default = _of_request(owner, name, "default", schemas)
    return _example_of_type(name, schema, schemas) if default in (None, []) else default


def _example_of_type(owner: str, schema: dict[str, Any], schemas: dict[str, Any]) -> Any:
    """An example made of those of the properties, of objects with this name."""
    if "$ref" in schema:
        target = schema["$ref"].rpartition("/")[2]
        return _example_of_type(target, schemas[target], schemas)
    if "anyOf" in schema:
        return _example_of_type(owner, schema["anyOf"][0], schemas)
    if "enum" in schema:
        return schema["enum"][0]
    if schema.get("default") not in (None, []):
        return schema["default"]
    if "properties" in schema:
        made = {name: _example(f"{owner}.{name}", prop, schemas) for name, prop in schema["properties"].items()}
        return {name: value for name, value in made.items() if value is not _UNKNOWN}
    if "items" in schema:
        item = _example_of_type(owner, schema["items"], schemas)
        return _UNKNOWN if item is _UNKNOWN else [item]
    if schema.get("type") == "boolean":
        return True
    return _EXAMPLES_OF_FORMATS.get(schema.get("format", ""), _UNKNOWN)


_UNKNOWN: Final = object()
_EXAMPLES_OF_FORMATS: Final = {"uuid": EXAMPLE_ID, "date-time": _INSTANT}
