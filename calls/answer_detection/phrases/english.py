"""English phrases."""

from __future__ import annotations

from typing import Final

from calls.answer_detection.phrases.phrase_set import PhraseSet

_NOT: Final = "(?:not|can t|cannot|couldn t|isn t|aren t)"
_TONE: Final = "(?:tone|beep|signal)"
_KEY: Final = "(?:zero|one|two|three|four|five|six|seven|eight|nine|star|pound|hash|[0-9])"

ENGLISH: Final = PhraseSet(
    mailbox_unavailable=(
        "(?:mail ?box|voice ?mail|voice ?mail box) (?:is|has|was) (?:currently )?(?:full|not)",
        "mail ?box (?:is )?full",
        "(?:has|have) not (?:been )?set up",
        "hasn t been set up",
        "(?:can ?not|can t|not) accept (?:any |more )?(?:new )?messages",
        "(?:number|subscriber|customer) (?:you (?:have |ve )?)?(?:dialed|dialled|called|calling|reached)?"
        " ?(?:is|has been|was) (?:not in service|disconnected|no longer)",
        "(?:is|are) no longer in service",
        "is not in service",
        "your call (?:can ?not|could not) be completed",
        "(?:does not|doesn t) have (?:a )?voice ?mail",
    ),
    unreachable=(
        "number you (?:have|ve) (?:dialed|dialled) (?:(?:is|was|has|does|can) ?(?:currently |presently |temporarily )?"
        "(?:not|been|un\\w+|switched|incorrect|invalid|out of)|cannot|can t|isn t)",
        "(?:number|subscriber|customer) (?:you (?:have |ve |are |re )?)?(?:dialed|dialled|called|calling|reached)?"
        " ?(?:is|was) (?:currently |presently )?(?:not available|unavailable|switched off)",
    ),
    call_screening=(
        "(?:state|say|record|tell me|give|leave) your (?:full )?name (?:and|so|after|for|then)"
        "(?! (?:your )?(?:a )?(?:number|phone|short|brief|detailed|message|telephone))",
        "(?:name|say|state|and) why you (?:re |are )?calling",
        "reason (?:for|of) (?:your|the|this) call",
        "(?:call|using a|uses a|the) screening",
        "screen(?:s|ing|ed)? (?:this|the|your|unknown|incoming) calls?",
        "(?:before i|i ll|i will) try to connect",
        "(?:see|check) if (?:this|the) person is available",
    ),
    voicemail=(
        f"(?:after|at|wait for|hear|until|following) (?:you hear )?(?:of )?the (?:sound of the )?{_TONE}",
        "(?:reached|to) the voice ?mail",
        "voice ?mail (?:box|service|system|of|for|greeting)",
        "(?:the )?mail ?box (?:of|for|belonging)",
        "(?:automated|automatic) voice",
        "forwarded to (?:an? )?(?:automated |automatic )?voice",
        "record (?:your|a) message",
        "(?:been|being) (?:forwarded|transferred|diverted) to (?:voice|an auto|a voice|the voice)",
        "finished recording",
        "reached (?:the )?(?:voice|answering)",
        "answering (?:machine|service)",
        "(?:finished|done) (?:please |just |simply |you (?:may|can) )*hang up",
        "hang up or press|or press the (?:pound|hash) key(?! (?:for|to))",
    ),
    voicemail_hint=(
        "(?:leave|leaving) (?:me |us )?(?:a|your|the) (?:short |brief |detailed )?(?:voice )?(?:message|name)",
        f"(?:{_NOT}|unable to) (?:be able to )?(?:get to|come to|take|answer|pick up) (?:the |your |my )?(?:phone"
        "|call)s?",
        f"{_NOT} (?:here|available|home|in|at home|in the office)(?: right now| at the moment| now)?"
        "|(?:is|s|are|re|am|m|currently|presently) unavailable",
        "away from (?:my|the|our) (?:phone|desk|office)",
        "(?:you ve|you have|you) reached",
        "(?:get|getting) back to you|(?:return|returning) your call|call you back as soon",
        "as soon as (?:possible|i|we|he|she|they)",
        "your (?:name )?(?:and )?(?:your )?(?:phone |telephone )?number",
        "(?:sorry (?:i|we) )?missed your call",
        "(?:currently|presently) closed",
        "(?:person|party|user|extension) (?:that )?(?:you (?:are |re |have |ve )?)(?:trying to (?:reach|call)|calling"
        "|called|dialed|dialled|reached)",
        "(?:office|business|opening) hours (?:are|is)",
        "voice ?mail",
        "thank you for calling|thanks for calling",
        # A receptionist says these, too.
        "(?:person|party|user) at (?:the )?(?:extension|expansion)",  # pocketsphinx hears the latter on telephones
        f"(?:extension|expansion|{_KEY}) is on the phone",
        "(?:nobody|no one|no ?body) is (?:currently )?available to (?:take|answer)",
        "hang up or (?:dial|stay)",
        "(?:end|stop) (?:the|your) recording",
    ),
    menu=(
        f"(?:press|dial|push|enter|touch) (?:or say )?(?!the (?:pound|hash))(?:the )?{_KEY}",
        # A voicemail greeting ends with "hang up or press the pound key".
        "for \\w+ (?:\\w+ ){0,3}press the (?:pound|hash)|press the (?:pound|hash)(?: key| sign)? (?:for|to)",
        "say or press",
        "main menu",
        "(?:following|these) (?:menu )?options",
        "menu options?|our options have",
        "listen carefully",
        "party s? ?extension",
        "(?:know|enter|dial) (?:the|your|his|her) (?:party s? )?extension",
        "please (?:enter|say|select|choose) (?:your|one of|from)",
        "for (?:english|sales|support|service|billing|customer service) (?:press|say|dial)",
        "para espanol",
    ),
    hold_queue=(
        "your call is (?:very )?important",
        "(?:all )?(?:of )?our (?:\\w+ )?(?:\\w+ )?(?:agents|representatives|operators|advisors|lines|associates"
        "|specialists)"
        " (?:are|is)",
        "(?:agents|representatives|operators|advisors|associates) (?:are|is) (?:currently |still |all )?"
        "(?:busy|assisting|helping|speaking)",
        "(?:next|first) (?:available|free) (?:\\w+ )?(?:agent|representative|operator|advisor|associate|specialist)",
        "in the order",
        "(?:estimated|approximate|expected|average) (?:wait|waiting|hold)",
        "(?:place|position|caller|number \\w+) in (?:the )?(?:line|queue)",
        "(?:wait|waiting) times?",
        "(?:continue|remain|keep) (?:to )?(?:hold|holding|on the line)",
        "(?:may|will|might) be (?:recorded|monitored)",
    ),
    hold_hint=(
        "please (?:hold|wait|stand by)",
        "stay on the line",
        "(?:we will|we ll) be with you",
        "answer(?:ed)? your call",
        "(?:thank you|thanks) for (?:holding|waiting|your patience|calling)",
    ),
    live=(
        "(?:how|what) (?:can|may|could) (?:i|we) (?:help|do|assist)",
        "(?:can|may|could) i (?:help|take|ask|get|have|call|tell)",
        "(?:do you|would you|you) (?:want|like) (?:to|me)",
        "(?:can|could|would|will) you (?:please )?(?:call|try|ring|phone|give|come|speak|say|repeat|hold|tell)",
        "(?:who s|who is|whos) (?:this|calling|there|speaking|it)",
        "who (?:am i|are you|do you)",
        "what (?:s|is) (?:this|it) (?:about|regarding|concerning|all about)",
        "what do you want",
        "(?:are you|is (?:any|some)(?:one|body)|anyone|anybody) there",
        "can you hear me",
        "i can t hear you",
        "hello hello",
        "i m (?:in a meeting|driving|busy|at work|in the middle)",
        "(?:one|just a|wait a|hang on a) (?:moment|second|minute|sec)",
        "hold on(?! the line)",
        "(?:i ll|i will|let me) (?:put you|get (?:him|her|them)|transfer you|see if (?:he|she)|check if (?:he|she))",
        "speaking",
        "(?:he|she) s? ?(?:is )?(?:in a meeting|out to lunch|at lunch|on another)",
    ),
    greeting=("hello", "hi", "hey", "hallo", "yes", "yeah", "good (?:morning|afternoon|evening|day)", "yo", "speaking"),
)
