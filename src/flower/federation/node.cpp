#include "flower/federation/node.h"

#include <atomic>
#include <exception>

#include "base/plain/files.h"
#include "base/plain/log.h"
#include "base/plain/text.h"
#include "base/system/interrupt.h"
#include "flower/federation/rows_error.h"
#include "flower/format/keys.h"

namespace evenkeel::flower {
namespace {

constexpr const char* kWaits = "; this node does not join that run and waits: it is asked again every half minute";
constexpr double kPatience_s = 10;  // for sending the answer to a shutdown
constexpr double kAlone_s = 60;     // without an answer of the server, after the final adapter was stored

class Node {
 public:
  explicit Node(const NodeProgram& program)
      : once_(program.once),
        link_(left_alone_or(program.link)),
        client_(program.client),
        key_(Key::load(program.link.key_file).public_key().fingerprint()) {}

  /// Joins, and answers until the end.
  void run() {
    link_.join();
    log::info("[node] joined as node ", link_.id());
    note(fed::AuditKind::kStart, concat("evenkeel ", version(), ", node ", link_.id()));
    try {
      work();
      note(fed::AuditKind::kStop, "done");
    } catch (const Stopped& stop) {
      if (left_alone()) return end_alone();
      leave(stop.what());
      throw;
    } catch (const Interrupted& interrupted) {  // in the middle of a task
      leave(interrupted.what());
      throw;
    } catch (const Error& error) {
      note(fed::AuditKind::kStop, reason_for_server(error));
      throw;
    }
  }

 private:
  /// Records an event of this node's process.
  void note(fed::AuditKind kind, const std::string& outcome) {
    client_.record().add({.kind = kind, .key = key_, .name = "this node", .outcome = outcome});
  }

  /// Returns the options with a `stop` that also ends the waits of a node that is left alone.
  NodeOptions left_alone_or(NodeOptions options) {
    options.stop = [this, stop = options.stop] { return stop() || left_alone(); };
    return options;
  }

  /// Returns true if nothing is left to do for a node that leaves after its run: it has the final adapter, and the
  /// server is gone. The server does not wait long for nodes that do not hear that the run is over.
  bool left_alone() const { return once_ && has_adapter_ && link_.silent_s() > kAlone_s; }

  void end_alone() {
    log::info("[node] the run is over: the final adapter was received, and the server has not answered for ", kAlone_s,
              " s");
    note(fed::AuditKind::kStop, "done, without the server's farewell");
  }

  void work() {
    while (!over_) {
      if (const auto instruction = link_.poll())
        take(*instruction);
      else
        link_.rest(client_.is_masked());
    }
    link_.leave(kPatience_s);
    if (refusal_) std::rethrow_exception(refusal_);
  }

  void leave(const std::string& why) {
    link_.sign_off();
    note(fed::AuditKind::kStop, why);
  }

  void take(const Instruction& instruction) {
    try {
      answer(instruction);
    } catch (const RunOver&) {
      log::info("[node] the server does not wait for that any more");
    } catch (const Error& error) {
      log::warning("[node] ", error.what());
    }
  }

  void answer(const Instruction& instruction) {
    IncomingEnvelope incoming(
        "the server", [this](const Envelope& envelope, int64_t bytes) { return client_.consent(envelope, bytes); });
    link_.receive(instruction, incoming.allocator());
    const auto answer = answer_of(instruction, incoming.envelope());
    if (!answer) return;
    const auto& asked = incoming.envelope().kind;
    if (asked == kAdapterEnvelope || asked == kOfferEnvelope) has_adapter_ = asked == kAdapterEnvelope;
    over_ = once_ && answer->kind == kShutdownEnvelope;  // also if the server has gone before it hears the answer
    if (!reply(instruction, *answer)) return;
    client_.delivered();
    if (answer->kind == kReplyEnvelope) worked_in_ = answer->run;
  }

  /// Sends an answer. \return false if the server did not take it, which is written down then
  bool reply(const Instruction& instruction, const Envelope& answer) {
    try {
      link_.reply(instruction, EnvelopePacker().content(answer));
      return true;
    } catch (const RunOver&) {
      client_.not_delivered("it does not wait for that any more");
    } catch (const Error& error) {
      client_.not_delivered(error.what());
    }
    return false;
  }

  /// Returns nothing if the client refuses; the server was told the reason then.
  std::optional<Envelope> answer_of(const Instruction& instruction, const Envelope& envelope) {
    try {
      if (envelope.kind == kOfferEnvelope) require_the_one_run(envelope.run);
      return client_.answer(envelope);
    } catch (const Error& error) {
      link_.refuse(instruction, ErrorCode::kRaised, reason_for_server(error));
      const bool offered = envelope.kind == kOfferEnvelope || envelope.kind == kRefusalEnvelope;
      if (once_ && (offered || envelope.kind == kAdapterEnvelope)) refusal_ = std::current_exception();
      over_ = offered && once_;
      if (over_) return std::nullopt;
      log::warning("[node] ", error.what(), offered ? kWaits : "");
      return std::nullopt;
    }
  }

  /// Checks that a node that leaves after its run is not offered a second one. \throws kConfig
  void require_the_one_run(const std::string& run) const {
    EK_CHECK(!once_ || worked_in_.empty() || worked_in_ == run, kConfig, "the server offers run ", run,
             " and has given up run ", worked_in_, ", in which this node took part: with --once it takes part in one");
  }

  const bool once_;
  std::atomic<bool> has_adapter_ = false;  // of the run that was offered last
  NodeLink link_;
  NodeClient client_;
  std::string worked_in_;  // the last run for which a task was done
  bool over_ = false;
  std::string key_;
  // With `once`, the node ends with the error for which it refused a run or could not store the final adapter.
  std::exception_ptr refusal_;
};

}  // namespace

void run_node(const NodeProgram& program) {
  try {
    Node(program).run();
  } catch (const Stopped&) {
    log::info("[node] stopped");
  }
}

}  // namespace evenkeel::flower
