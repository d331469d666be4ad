"""Portuguese phrases, of Portugal and Brazil."""

from __future__ import annotations

from typing import Final

from calls.answer_detection.phrases.phrase_set import PhraseSet

_KEY: Final = "(?:zero|um|uma|dois|duas|tres|quatro|cinco|seis|sete|oito|nove|asterisco|cardinal|sustenido|[0-9])"

PORTUGUESE: Final = PhraseSet(
    mailbox_unavailable=(
        "caixa (?:postal|de (?:correio|mensagens)) (?:de voz )?(?:esta|nao) (?:cheia|foi|disponivel|esta|lotada)",
        "(?:numero|telefone) (?:que )?(?:voce )?(?:para o qual ligou |marcado |discado |chamado |discou |marcou )?"
        "nao (?:existe|foi)",
        "fora de servico",
        "nao (?:pode|e possivel) (?:receber|deixar) (?:mais )?(?:mensagens|recados)",
        "nao tem (?:correio de voz|caixa|voice ?mail)",
    ),
    unreachable=(
        "(?:numero|telefone) (?:que )?(?:voce )?(?:para o qual ligou |marcado |discado |chamado |discou |marcou )?"
        "nao (?:esta|se encontra)",
        "(?:desligado|fora da area)",
    ),
    call_screening=(
        "(?:diga|fale|indique|informe) (?:o )?(?:seu|teu) nome (?:e|apos)(?! (?:o seu |o )?(?:numero|uma mensagem"
        "|recado))",
        "motivo da (?:sua |tua )?(?:chamada|ligacao)",
        "(?:porque|por que) (?:esta|voce esta) (?:a )?liga(?:r|ndo)",
        "filtr(?:a|agem|ar|ando) (?:de |as )?(?:chamadas|ligacoes)",
    ),
    voicemail=(
        "(?:apos|depois d)[oae]? ?(?:o )?(?:sinal|bip|tom|apito)",
        "(?:caixa (?:postal|de (?:correio|mensagens))|correio de voz|voice ?mail)",
        "(?:atendedor|secretaria) (?:de chamadas|automatic[oa]|eletronica)",
        "grave (?:a sua|sua|o seu|seu) (?:mensagem|recado)",
        "(?:desligue|desligar) ou (?:pressione|digite|prima|tecle|marque)",
    ),
    voicemail_hint=(
        # A receptionist says these, too.
        "pessoa n[oa] (?:ramal|extensao)",
        "esta (?:ocupad[oa]|ao telefone)",
        "(?:finalizar|terminar|encerrar) a gravacao",
        "(?:deixe|deixa|deixar|deixem) (?:me |nos )?(?:a |o )?(?:sua|seu|uma|um|tua|teu)",
        "nao (?:posso|podemos|pode|estou|estamos|esta) (?:\\w+ )?(?:atender|disponive(?:l|is)|em casa|contactavel)",
        "(?:ligou para|voce ligou|contactou)",
        "(?:retornarei|retornaremos|ligarei|ligaremos|ligo|devolverei|contactaremos|entraremos)",
        "(?:assim que (?:possivel|puder|pudermos)|logo que (?:possivel|puder)|o mais (?:breve|rapido))",
        "(?:seu|teu) (?:nome|numero|contacto|contato|telefone)",
        "(?:uma mensagem|um recado)",
        "horario (?:de|do) (?:atendimento|funcionamento)",
        "(?:pessoa|destino) (?:que|com quem|para quem) (?:voce )?(?:esta|deseja|tenta|ligou|procura)",
    ),
    menu=(
        f"(?:pressione|prima|digite|tecle|marque|disque) (?:a tecla |o |a )?{_KEY}",
        "menu principal",
        "(?:seguintes|estas) opcoes",
        "diga ou (?:digite|prima|tecle)",
    ),
    hold_queue=(
        "(?:todos )?(?:os )?nossos (?:operadores|atendentes|assistentes|colaboradores|agentes)",
        "tempo (?:estimado |medio )?de espera",
        "(?:a )?sua (?:chamada|ligacao) (?:e (?:muito )?importante|sera|podera|pode)",
        "(?:proximo|primeiro) (?:operador|atendente|assistente) disponivel",
        "(?:na|em) fila",
    ),
    hold_hint=(
        "(?:por favor )?aguarde(?: um (?:momento|instante)| na linha)?",
        "(?:permaneca|mantenha se|fique|continue) (?:na|em) (?:linha|espera)|nao desligue",
        "obrigad[oa] (?:por (?:aguardar|esperar|ligar|ter ligado)|pela (?:sua )?(?:espera|paciencia|chamada|ligacao))",
        "dentro de (?:momentos|instantes)|em instantes",
    ),
    live=(
        "(?:em que|como|no que) (?:o |a |lhe |te )?(?:posso|podemos) (?:ajudar|ajuda l[oa]|ser util|servir)"
        "|posso ajudar",
        "(?:quem (?:e|fala|esta)|com quem (?:falo|eu falo|estou))|da parte de quem",
        "(?:pode|poderia|podes|voce pode) (?:me )?(?:ligar|repetir|aguardar|tentar|retornar|voltar)",
        "(?:do que se trata|qual (?:e )?o assunto|o que deseja)",
        "(?:estou|to) (?:em reuniao|numa reuniao|a conduzir|dirigindo|ocupad[oa]|no transito|a trabalhar)",
        "(?:esta(?:s)?|voce esta) (?:a )?(?:me )?ouvi(?:r|ndo)|tem alguem|esta ai",
        "(?:vou|ja) (?:lhe )?passar|so um (?:momento|instante|minuto)|um momentinho",
    ),
    greeting=("alo", "estou", "esta la", "sim", "ola", "bom dia", "boa (?:tarde|noite)", "oi", "pronto", "fala"),
)
