// Fuzzes single objects: their headers, and the bodies of each type.
#include "flower/format/calls.h"
#include "flower/format/objects.h"
#include "tests/fuzz/fuzz.h"

void evenkeel::fuzz::fuzz_one(std::string_view input) {
  using namespace evenkeel::wire;
  const Limits limits{.objects = 1000, .structure = 1 << 16};
  const ObjectView view = ObjectView::parse(input, limits);
  if (view.type == "ArrayRecord" || view.type == "RecordDict") {
    const auto found = references_from_json(view.body, limits);
    if (references_from_json(references_to_json(found), limits) != found) finding("references that change", {});
  } else if (view.type == "Array") {
    const ArrayBody body = array_from_json(view.body, view.children.size(), limits);
    const ArrayBody again = array_from_json(to_json(body), view.children.size(), limits);
    if (again.head != body.head || again.chunks != body.chunks) finding("an array's head that changes", {});
    body.head.bytes();
  } else if (view.type == "Message") {
    const Envelope envelope = decode_message(view.body);
    const std::string once = encode_message(envelope.metadata, envelope.failure);
    if (encode_message(decode_message(once).metadata, envelope.failure) != once) finding("a message that changes", {});
  } else {
    const Config record(decode_items(view.body));
    const std::string once = encode(record);
    if (encode(Config(decode_items(once))) != once) finding("values that change", {});
    if (view.type == "MetricRecord") encode(Metrics(record));
  }
}
