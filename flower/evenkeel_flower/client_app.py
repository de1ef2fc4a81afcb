"""Hands each message to the resident node of this site, and its answer back. The node, which `evenkeel node --socket`
started, is named by `--node-config 'evenkeel.socket="PATH"'` of the SuperNode."""

from flwr.app import Context, Error, Message
from flwr.clientapp import ClientApp

from evenkeel_flower.lines import VERSION, Refused, connect

PRECONDITION = 6  # of Flower's error codes

app = ClientApp()


@app.train()
@app.evaluate()
@app.query()
def answer(message: Message, context: Context) -> Message:
    path = context.node_config.get("evenkeel.socket")
    if not path:
        return refusal(message, PRECONDITION, "--node-config of this SuperNode names no evenkeel.socket")
    try:
        with connect(str(path)) as node:
            _, content = node.ask(request(message), message.content)
            node.send({"op": "taken"})
    except Refused as refused:
        return refusal(message, refused.code, str(refused))
    except OSError as error:
        return refusal(message, PRECONDITION, f"the node at {path} does not answer: {error}")
    return Message(content, reply_to=message)


def request(message):
    told = message.metadata
    return {"op": "answer", "version": VERSION, "node": told.dst_node_id, "run": told.run_id, "message": told.message_id,
            "type": told.message_type, "group": told.group_id}


def refusal(message, code, reason):
    return Message(Error(code=code, reason=reason), reply_to=message)
