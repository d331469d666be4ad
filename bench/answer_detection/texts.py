"""What people and machines say in the made calls. The rules were tuned on `DEVELOPMENT` texts and not on `HELD_OUT`
ones, which were written before. By scenario (see `bench.answer_detection.corpus`) and language."""

from __future__ import annotations

from typing import Final

Texts = dict[str, dict[str, tuple[str, ...]]]

DEVELOPMENT: Final[Texts] = {
    "short_answer": {
        "en": ("Hello?", "Hello, this is Anna.", "Yes?", "Miller.", "Hi, it's Tom.", "Good morning."),
        "de": ("Hallo?", "Müller.", "Ja bitte?"),
        "fr": ("Allô?", "Oui, bonjour.", "Marie Dubois."),
        "es": ("¿Diga?", "Hola, buenos días."),
        "it": ("Pronto?", "Sì, pronto, chi parla?"),
        "nl": ("Hallo?", "Met Jan de Vries."),
        "pt": ("Alô?", "Estou, bom dia."),
    },
    "business_greeting": {
        "en": (
            "Acme, good morning, Anna speaking, how can I help you?",
            "Thank you for calling Riverside Dental, this is Paul, what can I do for you?",
            "Good afternoon, you have reached the front desk of Hotel Astoria, Maria speaking.",
            "Miller and Sons, good morning, who am I speaking with?",
        ),
        "de": ("Firma Schneider, guten Tag, mein Name ist Weber, was kann ich für Sie tun?",),
        "fr": ("Cabinet Martin, bonjour, Julie à l'appareil, que puis-je faire pour vous?",),
        "es": ("Clínica Ruiz, buenas tardes, le atiende Carmen, ¿en qué puedo ayudarle?",),
        "it": ("Studio Rossi, buongiorno, sono Paola, come posso aiutarla?",),
        "nl": ("Garage Bakker, goedemorgen, u spreekt met Kees, waarmee kan ik u helpen?",),
        "pt": ("Clínica Silva, boa tarde, fala a Joana, em que posso ajudar?",),
    },
    "live_unavailable": {
        "en": (
            "I'm not available right now, can you call later?",
            "Sorry, I'm driving, could you call me back in an hour?",
            "He is not here right now, can I take a message?",
            "I can't talk right now, I am in a meeting, please try again this afternoon.",
        ),
        "de": ("Ich bin gerade nicht erreichbar, können Sie später noch mal anrufen?",),
        "fr": ("Je ne suis pas disponible, vous pouvez me rappeler plus tard?",),
        "es": ("Ahora no puedo atender, ¿puede llamar más tarde?",),
        "it": ("In questo momento non posso rispondere, può richiamare più tardi?",),
        "nl": ("Ik ben nu niet bereikbaar, kunt u later terugbellen?",),
        "pt": ("Agora não posso atender, pode ligar mais tarde?",),
    },
    "long_talker": {
        "en": (
            "Oh hi, I was just about to call you, we are standing in the kitchen here and the dishwasher makes this"
            " strange noise again, and my brother says that it is the pump, but I think that it is something else.",
            "Yeah, hello, sorry it took me a while to find the phone, the kids hid it under the sofa and I could hear"
            " it ringing but had no idea where it was, anyway, here I am.",
        ),
        "de": (
            "Ach hallo, gut dass Sie anrufen, wir stehen hier gerade in der Küche und die Spülmaschine macht wieder so"
            " ein komisches Geräusch, und mein Bruder meint, es ist die Pumpe.",
        ),
        "es": (
            "Hola, perdona que haya tardado tanto, los niños habían escondido el teléfono debajo del sofá y lo oía"
            " sonar pero no sabía dónde estaba.",
        ),
    },
    "voicemail": {
        "en": (
            "Hi, you've reached Anna Miller. I can't come to the phone right now. Please leave a message after the"
            " beep.",
            "Your call has been forwarded to an automated voice messaging system. Five five five, one two three four,"
            " is not available. At the tone, please record your message.",
            "This is Tom. Sorry I missed your call. Leave your name and number and I'll get back to you as soon as I"
            " can.",
            "You have reached the voice mailbox of Riverside Dental. Our office hours are Monday to Friday from nine to"
            " five. Please leave a message after the tone, and we will return your call.",
            "Hello, this is Susan. I'm away from my desk at the moment. Please leave your name, your number and a short"
            " message, and I will call you back as soon as possible. Thank you.",
        ),
        "de": (
            "Guten Tag, hier ist der Anschluss von Peter Schmidt. Ich bin zurzeit nicht erreichbar. Bitte hinterlassen"
            " Sie eine Nachricht nach dem Signalton.",
            "Hallo, das ist die Mailbox von Anna. Ich kann gerade nicht ans Telefon gehen. Sprechen Sie nach dem Piep.",
        ),
        "fr": (
            "Bonjour, vous êtes bien sur la messagerie de Marie Dubois. Je ne suis pas disponible pour le moment."
            " Laissez un message après le bip.",
        ),
        "es": (
            "Hola, has llamado a Carmen. Ahora no puedo atenderte. Deja tu mensaje después de la señal y te llamaré en"
            " cuanto pueda.",
        ),
        "it": (
            "Risponde la segreteria telefonica di Paola Rossi. In questo momento non posso rispondere. Lasciate un"
            " messaggio dopo il segnale acustico.",
        ),
        "nl": (
            "Hallo, dit is de voicemail van Jan de Vries. Ik ben er even niet. Spreek een bericht in na de piep, dan"
            " bel ik u terug.",
        ),
        "pt": (
            "Olá, ligou para a Joana. Neste momento não posso atender. Deixe a sua mensagem após o sinal e ligarei"
            " assim que possível.",
        ),
    },
    "mailbox_unavailable": {
        "en": (
            "The mailbox is full and cannot accept any messages at this time. Goodbye.",
            "We're sorry, the number you have dialed is not in service. Please check the number and dial again.",
            "The person you are trying to reach has a voice mailbox that has not been set up yet.",
        ),
        "de": ("Kein Anschluss unter dieser Nummer.",),
        "es": ("El teléfono al que llama está apagado o fuera de cobertura en este momento.",),
    },
    "call_screening": {
        "en": (
            "Hi, if you record your name and reason for calling, I'll see if this person is available.",
            "Hi, the person you're calling is using a screening service and will get a copy of this conversation. Go"
            " ahead and say your name and why you're calling.",
        ),
        "de": ("Hallo, bitte nennen Sie Ihren Namen und den Grund Ihres Anrufs.",),
        "fr": ("Bonjour, dites votre nom et le motif de votre appel.",),
    },
    "menu": {
        "en": (
            "Thank you for calling Acme. For sales, press one. For support, press two. To repeat these options, press"
            " nine.",
            "Welcome to First Bank. Please listen carefully as our menu options have changed. If you know your party's"
            " extension, you may dial it at any time.",
        ),
        "de": ("Willkommen bei der Stadtsparkasse. Für Fragen zu Ihrem Konto drücken Sie die Eins.",),
        "nl": ("Welkom bij de gemeente. Voor afspraken, toets één. Voor overige vragen, toets twee.",),
    },
    "hold_queue": {
        "en": (
            "All of our agents are currently busy. Please stay on the line and your call will be answered in the order"
            " it was received.",
            "Your call is important to us. Please continue to hold for the next available representative.",
        ),
        "de": ("Zurzeit sind alle Mitarbeiter im Gespräch. Bitte bleiben Sie in der Leitung.",),
        "it": ("Tutti i nostri operatori sono occupati. Attendere in linea, prego.",),
    },
}

HELD_OUT: Final[Texts] = {
    "short_answer": {
        "en": (
            "Hello, hello?",
            "Yeah?",
            "Johnson speaking.",
            "Hey there.",
            "Good evening, Carter residence.",
            "Who is this?",
        ),
        "de": ("Ja, hallo?", "Schneider, guten Tag.", "Wer ist da?"),
        "fr": ("Oui?", "Allô, c'est qui?", "Bonsoir, Martin."),
        "es": ("¿Sí?", "Dígame."),
        "it": ("Sì?", "Buongiorno, Bianchi."),
        "nl": ("Ja, met Bakker.", "Goedemiddag."),
        "pt": ("Sim?", "Oi, tudo bem?"),
    },
    "business_greeting": {
        "en": (
            "Good morning, Baker Street Pharmacy, Linda here, how may I help?",
            "Parker Plumbing, this is Steve.",
            "Hello, City Hall, information desk, my name is Karen, what is this regarding?",
            "Thanks for calling Pizza Palace, will this be for pick up or delivery?",
        ),
        "de": ("Praxis Doktor Wagner, Sie sprechen mit Frau Klein, wie kann ich Ihnen helfen?",),
        "fr": ("Hôtel du Lac, bonsoir, en quoi puis-je vous aider?",),
        "es": ("Taller García, buenos días, dígame.",),
        "it": ("Albergo Centrale, buonasera, mi dica.",),
        "nl": ("Tandartspraktijk Visser, met Els, wat kan ik voor u doen?",),
        "pt": ("Restaurante Mar, bom dia, como posso ajudar?",),
    },
    "live_unavailable": {
        "en": (
            "I can't take the call at the moment, would you call again tomorrow?",
            "She's not in the office today, may I ask who is calling?",
            "Look, this is a bad time, I am at work and my boss is here.",
            "Sorry, she isn't home, do you want to leave a message?",
        ),
        "de": ("Der Chef ist gerade nicht im Büro, kann ich etwas ausrichten?",),
        "fr": ("Il n'est pas là, c'est de la part de qui?",),
        "es": ("No está en casa, ¿quiere dejarle un mensaje?, ¿quién llama?",),
        "it": ("Sono alla guida, può richiamare tra un'ora?",),
        "nl": ("Hij is niet aanwezig, wie kan ik zeggen dat er gebeld heeft?",),
        "pt": ("Ela não está em casa, quem fala?",),
    },
    "long_talker": {
        "en": (
            "Hey, great that you call, listen, I have been to the shop this morning and they told me that the part has"
            " to be ordered from abroad, so it is going to take two weeks, and I really do not know what to do.",
            "Hello, yes, hang on, I have to turn down the radio, it is so loud in here, there was a program about the"
            " history of trains and I got carried away, so, who is it?",
        ),
        "de": (
            "Ja hallo, Moment, ich muss erst das Radio leiser machen, da lief gerade eine Sendung über alte"
            " Lokomotiven, und da habe ich die Zeit ganz vergessen.",
        ),
        "es": (
            "Hola, qué bien que llamas, mira, esta mañana fui a la tienda y me dijeron que hay que pedir la pieza al"
            " extranjero y que tarda dos semanas.",
        ),
    },
    "voicemail": {
        "en": (
            "Hello, you have reached Mark Johnson. I am not available at the moment. If you leave me a message with"
            " your phone number, I will get back to you as soon as I can.",
            "The Google subscriber you have called is not available. Please leave a message after the tone.",
            "Hey, it's Lucy, you know what to do. Wait for the beep.",
            "Thank you for calling Parker Plumbing. We are currently closed. To leave a message, please stay on the"
            " line and speak after the signal.",
            "You've reached the Carters. We're not at home, so please leave your name and number, and we'll call you"
            " back as soon as possible.",
        ),
        "de": (
            "Hallo, hier ist die Mailbox der Familie Becker. Wir sind leider nicht zu Hause. Bitte sprechen Sie Ihre"
            " Nachricht nach dem Ton.",
            "Sie haben die Praxis Wagner außerhalb der Sprechzeiten angerufen. Bitte hinterlassen Sie Ihre"
            " Telefonnummer, wir rufen Sie zurück.",
        ),
        "fr": (
            "Bonjour, c'est le répondeur de la famille Martin. Nous sommes absents. Merci de laisser votre nom et votre"
            " numéro, nous vous rappellerons dès que possible.",
        ),
        "es": (
            "Se ha comunicado con el consultorio del doctor García. No estamos disponibles. Por favor deje su nombre y"
            " su número y le llamaremos lo antes posible.",
        ),
        "it": (
            "Ciao, sono Marco, in questo momento non sono raggiungibile. Lascia un messaggio, ti richiamerò appena"
            " possibile.",
        ),
        "nl": (
            "U bent verbonden met Garage Bakker. Wij zijn momenteel gesloten. Laat uw naam en telefoonnummer achter,"
            " dan bellen wij u zo spoedig mogelijk terug.",
        ),
        "pt": (
            "Você ligou para o João. Não estou disponível no momento. Por favor, deixe seu nome e telefone e eu"
            " retornarei a ligação.",
        ),
    },
    "mailbox_unavailable": {
        "en": (
            "The customer you are calling is not available at present. Please try again later.",
            "The voice mailbox you have reached is full. Please call back at another time.",
            "The number you have reached has been disconnected or is no longer in service.",
        ),
        "de": ("Der gewünschte Gesprächspartner ist zurzeit nicht erreichbar.",),
        "es": ("El número que usted marcó no existe.",),
    },
    "call_screening": {
        "en": (
            "Before I try to connect you, please state your name and the reason for your call.",
            "Hello, this call is being screened. Please say your name after the tone and I will check if the person is"
            " available.",
        ),
        "de": ("Bevor ich Sie verbinde, sagen Sie bitte Ihren Namen und warum Sie anrufen.",),
        "fr": ("Indiquez votre nom et l'objet de votre appel, s'il vous plaît.",),
    },
    "menu": {
        "en": (
            "You have reached the county clerk. For birth certificates press one, for all other questions press zero.",
            "Hi, thanks for calling Green Energy. In a few words, tell me the reason you are calling, or say main"
            " menu.",
        ),
        "de": ("Herzlich willkommen. Für eine Bestellung wählen Sie die Eins, für alles andere die Zwei.",),
        "nl": ("U spreekt met de keuzehulp. Voor storingen, kies één. Voor facturen, kies twee.",),
    },
    "hold_queue": {
        "en": (
            "Thank you for holding. You are caller number three in the queue. The estimated waiting time is five"
            " minutes.",
            "Please hold while we connect you. This call may be recorded for training purposes.",
        ),
        "de": ("Bitte haben Sie einen Moment Geduld, der nächste freie Mitarbeiter ist gleich für Sie da.",),
        "it": ("Grazie per l'attesa, il primo operatore disponibile le risponderà a breve.",),
    },
}

SECOND_TURNS: Final = (
    "Yes, that's me.",
    "What is it about?",
    "Okay, go ahead.",
    "No thank you, I am not interested.",
)
"""What English people say after the agent's first words."""
