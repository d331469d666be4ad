"""Spanish phrases."""

from __future__ import annotations

from typing import Final

from calls.answer_detection.phrases.phrase_set import PhraseSet

_KEY: Final = "(?:cero|uno|una|dos|tres|cuatro|cinco|seis|siete|ocho|nueve|asterisco|almohadilla|numeral|gato|[0-9])"

SPANISH: Final = PhraseSet(
    mailbox_unavailable=(
        "buzon (?:de voz )?(?:esta|se encuentra|no) (?:lleno|disponible|acepta|ha sido|esta|configurado)",
        "(?:numero|telefono) (?:que )?(?:usted )?(?:ha )?(?:marcado|marco|llamado)? ?(?:no existe"
        "|no esta (?:en servicio|asignado|activo)|no corresponde)",
        "no (?:puede|es posible) (?:recibir|dejar|aceptar) (?:mas )?mensajes",
        "(?<!o )fuera de servicio",
        "no tiene buzon",
    ),
    unreachable=(
        "(?:numero|telefono) (?:que |al que )?(?:usted )?(?:ha )?(?:marcado|marco|llamado|llama)? ?no"
        " (?:esta|se encuentra) disponible",
        "(?:apagado|apagada) o fuera de (?:cobertura|servicio|area)",
    ),
    call_screening=(
        "(?:diga|di|indique|grabe|proporcione) (?:su|tu) nombre (?:y|despues)(?! (?:su |tu )?(?:numero|un mensaje))",
        "(?:motivo|razon) de (?:su|tu|la) llamada",
        "por que (?:llama|llamas|esta llamando)",
        "filtr(?:a|ado|ar|ando) (?:de |las |tus |sus )?llamadas?",
    ),
    voicemail=(
        "(?:despues|tras|luego|al oir|cuando escuche|a partir) (?:de |del |de la |de oir |la |el )*(?:senal|tono|bip"
        "|pitido)",
        "(?:buzon|correo) de voz",
        "contestador(?:a)?(?: automatico)?",
        "grabe su mensaje",
        "(?:cuelgue|colgar) o (?:pulse|presione|marque|oprima|pulsar)",
    ),
    voicemail_hint=(
        # A receptionist says these, too.
        "persona en la extension",
        "(?:fin a|finalizar|terminar|detener) la grabacion",
        "(?:deje|deja|dejar|dejenos|dejeme|dejame|dejanos) (?:me |nos )?(?:un|su|tu|sus)",
        "(?:no (?:puedo|podemos|puede) (?:atender|contestar|responder|coger)"
        "|no (?:estoy|estamos|esta|se encuentra) (?:disponibles?|en casa|aqui|libre))",
        "(?:ha|has) (?:llamado|comunicado)|se ha comunicado",
        "(?:devolvere|devolveremos|devolvera|llamare|llamaremos|contactaremos|contactare) (?:la |su |tu )?"
        "(?:llamada|lo antes|en cuanto|tan pronto|cuanto)",
        "(?:lo antes posible|tan pronto como|en cuanto (?:pueda|podamos)|a la brevedad)",
        "(?:su|tu) (?:nombre|numero)",
        "un mensaje",
        "horario (?:de atencion|es|laboral)",
        "persona (?:con|a) (?:la )?(?:que|quien) (?:usted )?(?:intenta|desea|llama|quiere)"
        "|nadie esta (?:libre|disponible)",
    ),
    menu=(
        f"(?:pulse|marque|presione|oprima|digite) (?:el |la |la tecla |el numero )?{_KEY}",
        "menu principal",
        "(?:siguientes|estas) opciones",
        "diga o (?:pulse|marque)",
    ),
    hold_queue=(
        "(?:todos )?nuestros (?:agentes|operadores|asesores|ejecutivos|representantes)",
        "tiempo (?:estimado )?de espera",
        "su llamada (?:es (?:muy )?importante|sera|puede|podra|esta siendo)",
        "(?:siguiente|proximo|primer) (?:agente|operador|asesor|ejecutivo) disponible",
        "en (?:la )?(?:cola|fila)",
    ),
    hold_hint=(
        "(?:por favor )?espere(?: por favor)?|por favor espere",
        "(?:permanezca|mantengase|no se retire) (?:en|a)|no cuelgue",
        "gracias por (?:su paciencia|esperar|llamar|su llamada)",
        "en breve|unos instantes|en unos momentos",
    ),
    live=(
        "(?:en que|como) (?:le |te |la |lo )?(?:puedo|podemos) (?:ayudar|servir|atender)",
        "(?:quien|con quien) (?:es|habla|llama|hablo|eres|esta ahi)|de parte de",
        "(?:puede|podria|puedes|podrias) (?:usted )?(?:llamar|llamarme|repetir|esperar|intentar)",
        "(?:que|de que) (?:desea|quiere|se trata)",
        "estoy (?:en una reunion|conduciendo|manejando|ocupad[oa]|reunid[oa])",
        "me (?:oye|oyes|escucha|escuchas)|hay alguien",
        "(?:le|te) (?:paso|comunico)",
        "un momento|digame|diga me|al aparato",
    ),
    greeting=("hola", "si", "diga", "digame", "bueno", "alo", "alo si", "buenos dias", "buenas tardes", "buenas"),
)
