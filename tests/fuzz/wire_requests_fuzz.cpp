// Fuzzes requests of nodes to a coordinator. The first byte selects the call, the rest is its body.
#include "flower/format/calls.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace evenkeel;
using namespace evenkeel::wire;

std::string sent_again(const PushObjectRequest& call) {
  return encode(static_cast<const ObjectRequest&>(call)) + object_field(kPushedField, call.content.size()) +
         std::string(call.content);
}
std::string sent_again(const auto& call) { return encode(call); }

template <typename Call>
void check(std::string_view body) {
  const std::string once = sent_again(decode<Call>(body)), twice = sent_again(decode<Call>(once));
  if (once != twice) fuzz::finding("a call that does not arrive as it was sent", {});
}

}  // namespace

void evenkeel::fuzz::fuzz_one(std::string_view input) {
  if (input.empty()) return;
  const auto body = input.substr(1);
  switch (input[0]) {
    case 'r':
      return check<RegisterRequest>(body);
    case 'a':
      return check<ActivateRequest>(body);
    case 'd':
      return check<NodeId>(body);
    case 'h':
      return check<HeartbeatRequest>(body);
    case 'm':
      return check<PullMessagesRequest>(body);
    case 'p':
      return check<PushMessagesRequest>(body);
    case 'o':
      return check<ObjectRequest>(body);
    case 'O':
      return check<PushObjectRequest>(body);
    case 'c':
      return check<ConfirmRequest>(body);
    case 'g':
      return check<GetRunRequest>(body);
    case 'f':
      return check<GetFabRequest>(body);
    default:
      return;
  }
}
