/// \file  Lets nodes join a run: sends offers to nodes that are no members yet and takes their answers, before the run
/// begins and while it runs. It also follows changes of the list of keys: a client whose key is replaced gets the node
/// with the new key. Private to FleetFabric.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "flower/federation/envelope.h"
#include "flower/federation/fleet.h"

namespace evenkeel::flower {

/// The nodes that are asked to join. Threads: one.
class Gathering {
 public:
  /// Borrows the fleet. Fleet::joining and Fleet::terms are used as they are at each call.
  explicit Gathering(Fleet& fleet) : fleet_(fleet) {}
  ~Gathering();  ///< forgets all open messages
  Gathering(const Gathering&) = delete;
  Gathering& operator=(const Gathering&) = delete;

  /// Records which keys were admitted and removed since the last call, and hands over clients whose key was replaced.
  /// Then sends an offer or a refusal to each node that is online and no member, unless it has to wait because no
  /// client is free. A node that was refused or declined is asked again half a minute later, or as soon as the list of
  /// keys changes its name or the key that it replaces. One that left while it was asked is asked when it is online.
  void attend();
  /// Takes the result of a message; ignores results of messages that this object did not send.
  /// \throws Arrival::failure, an error of this machine
  void on_reply(const Arrival& arrival);
  /// Removes members whose key may not join any more. Call it before the run begins only.
  void drop_barred();

 private:
  using Clock = std::chrono::steady_clock;
  struct Asked {
    NodeInfo node;
    int64_t client;
    Place place;
    IncomingEnvelope incoming;
    bool under_way;  // the offer had the final config of the run
  };

  std::set<int64_t> taken() const;
  bool is_asked(uint64_t node) const;
  void record_list(std::span<const NodeInfo> nodes);
  void hand_over(std::span<const NodeInfo> nodes);
  void ask(const NodeInfo& node, const Place& place);
  void refuse(const NodeInfo& node, const std::string& why);
  void add(const Asked& asked);
  void tell_what_is_not_given(const std::string& name, const Acceptance& acceptance) const;
  void record_join(const Member& member, const Envelope& envelope) const;
  void pass_over(const NodeInfo& node, std::string_view why);

  Fleet& fleet_;
  std::optional<std::map<std::string, std::string>> listed_;  // names by key, at the last look; nothing: none was
  std::map<std::string, Asked> asked_;                        // by message
  std::map<std::string, uint64_t> refused_;                   // nodes, by message
  /// When nodes are asked again, by id, name and replaced key: a node that the list of keys names anew is asked at
  /// once.
  std::map<std::string, Clock::time_point> ask_again_;
};

}  // namespace evenkeel::flower
