// Fuzzes single objects: their headers, and the bodies of each type.
#include "flower/format/calls.h"
#include "flower/format/objects.h"
#include "tests/fuzz/fuzz.h"

void evenkeel::fuzz::fuzz_one(std::string_view input) {
  using namespace evenkeel::flower;
  const flower::Limits limits{.objects = 1000, .structure = 1 << 16};
  const flower::ObjectView view = flower::ObjectView::parse(input, limits);
  if (view.type == "ArrayRecord" || view.type == "RecordDict") {
    const auto found = flower::references_from_json(view.body, limits);
    if (flower::references_from_json(flower::references_to_json(found), limits) != found)
      fuzz::finding("references that change", {});
  } else if (view.type == "Array") {
    const flower::ArrayBody body = flower::array_from_json(view.body, view.children.size(), limits);
    const flower::ArrayBody again = flower::array_from_json(flower::to_json(body), view.children.size(), limits);
    if (again.head != body.head || again.chunks != body.chunks) fuzz::finding("an array's head that changes", {});
    body.head.bytes();
  } else if (view.type == "Message") {
    const flower::CallMessage envelope = flower::decode_message(view.body);
    const std::string once = flower::encode_message(envelope.metadata, envelope.failure);
    if (flower::encode_message(flower::decode_message(once).metadata, envelope.failure) != once)
      fuzz::finding("a message that changes", {});
  } else {
    const flower::Config record(flower::decode_items(view.body));
    const std::string once = flower::encode(record);
    if (flower::encode(flower::Config(flower::decode_items(once))) != once) fuzz::finding("values that change", {});
    if (view.type == "MetricRecord") flower::encode(flower::Metrics(record));
  }
}
