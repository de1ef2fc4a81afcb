// Fuzzes responses of a server to a node. The first byte selects the call, the rest is the body.
#include "flower/format/calls.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace evenkeel;
using namespace evenkeel::flower;

std::string answered_again(const flower::PullObjectResponse& call) {
  return flower::encode(call) + flower::object_field(flower::kPulledField, call.content.size()) +
         std::string(call.content);
}
std::string answered_again(const auto& call) { return flower::encode(call); }

template <typename Call>
void check(std::string_view body) {
  const std::string once = answered_again(flower::decode<Call>(body)),
                    twice = answered_again(flower::decode<Call>(once));
  if (once != twice) fuzz::finding("an answer that does not arrive as it was sent", {});
}

}  // namespace

void evenkeel::fuzz::fuzz_one(std::string_view input) {
  if (input.empty()) return;
  const auto body = input.substr(1);
  switch (input[0]) {
    case 'i':
      return check<flower::NodeId>(body);
    case 'h':
      return check<flower::HeartbeatResponse>(body);
    case 'm':
      return check<flower::PullMessagesResponse>(body);
    case 'p':
      return check<flower::PushMessagesResponse>(body);
    case 'o':
      return check<flower::PullObjectResponse>(body);
    case 'O':
      return check<flower::PushObjectResponse>(body);
    default:
      return;
  }
}
