// Fuzzes responses of a server to a node. The first byte selects the call, the rest is the body.
#include "flower/format/calls.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace evenkeel;
using namespace evenkeel::wire;

std::string answered_again(const PullObjectResponse& call) {
  return encode(call) + object_field(kPulledField, call.content.size()) + std::string(call.content);
}
std::string answered_again(const auto& call) { return encode(call); }

template <typename Call>
void check(std::string_view body) {
  const std::string once = answered_again(decode<Call>(body)), twice = answered_again(decode<Call>(once));
  if (once != twice) fuzz::finding("an answer that does not arrive as it was sent", {});
}

}  // namespace

void evenkeel::fuzz::fuzz_one(std::string_view input) {
  if (input.empty()) return;
  const auto body = input.substr(1);
  switch (input[0]) {
    case 'i':
      return check<NodeId>(body);
    case 'h':
      return check<HeartbeatResponse>(body);
    case 'm':
      return check<PullMessagesResponse>(body);
    case 'p':
      return check<PushMessagesResponse>(body);
    case 'o':
      return check<PullObjectResponse>(body);
    case 'O':
      return check<PushObjectResponse>(body);
    default:
      return;
  }
}
