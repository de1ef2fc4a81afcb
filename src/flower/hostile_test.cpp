// What a coordinator does with peers that are broken or mean harm: each is contained to itself, and others go on.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "base/plain/base64.h"
#include "base/plain/clock.h"
#include "flower/format/calls.h"
#include "flower/format/objects.h"
#include "flower/testing.h"

namespace evenkeel::flower {
namespace {

constexpr double kHeadSeconds = 30;  // seconds for the head of a request

using testing::in, testing::Keys, testing::Memory, testing::node_options, testing::OwnedArray, testing::RawCaller;

/// A coordinator whose second node behaves; the first is what each test makes of it.
class Hostile : public ::testing::Test {
 protected:
  Hostile()
      : keys_(2), options_(options()), coordinator_(options_), good_(testing::node_options(coordinator_, keys_, 1)) {
    good_.join();
  }

  CoordinatorOptions options() const {
    auto options = testing::options_for(keys_);
    options.threads = 4;
    options.limits.chunk = size_t{1} << 20;
    options.node_limits = {.calls_per_s = 50, .burst = 100, .head_s = kHeadSeconds, .silence_s = 3};
    return options;
  }

  /// The first node, joined, and without its NodeLink's manners.
  testing::RawCaller& bad() {
    auto& caller = bad_.emplace(coordinator_, keys_.file(0));
    id_ = testing::id_of(coordinator_, "node-0");
    caller.post(path::kActivate, encode(ActivateRequest{caller.signer.public_key().pem(), 10}));
    return caller;
  }

  /// The well-behaved node does its work, and nothing is reported of it but that.
  void expect_others_go_on() {
    const auto id = coordinator_.send(good_.id(), Content(), {});
    const auto instruction = testing::next_instruction(good_);
    good_.receive(instruction, {});
    good_.reply(instruction, Content());
    while (const auto arrival = coordinator_.wait(testing::patience())) {
      if (arrival->message_id != id) continue;
      EXPECT_EQ(arrival->kind, Arrival::Kind::kReply) << arrival->reason;
      return;
    }
    ADD_FAILURE() << "the good node's reply did not arrive";
  }

  NodeInfo info() const {
    for (const auto& node : coordinator_.nodes())
      if (node.id == id_) return node;
    return {};
  }

  /// An instruction in the first node's hands, and metadata for a reply to it.
  Metadata pulled(testing::RawCaller& caller, BufferAllocator place = {}) {
    coordinator_.send(id_, Content(), {.place = std::move(place)});
    const auto answer = caller.post(path::kPullMessages, encode(PullMessagesRequest{id_}));
    const auto asked = decode<PullMessagesResponse>(answer.body).message->metadata;
    return {.run_id = asked.run_id,
            .src_node = id_,
            .dst_node = 1,
            .reply_to = asked.message_id,
            .ttl = 100,
            .created_at = now_seconds()};
  }

  static CallMessage envelope(const Parcel& parcel) {
    return {.metadata = parcel.metadata(), .has_content = true, .tree = parcel.tree()};
  }

  PushMessagesResponse announce(testing::RawCaller& caller, const CallMessage& envelope) {
    const auto answer = caller.post(path::kPushMessages, encode(PushMessagesRequest{.node = id_, .message = envelope}));
    EXPECT_EQ(answer.status, 200) << answer.detail;
    return decode<PushMessagesResponse>(answer.body);
  }

  Answer push(testing::RawCaller& caller, const Metadata& metadata, const std::string& token, const std::string& id,
              const std::string& content) {
    const ObjectRequest request{.node = id_, .run_id = metadata.run_id, .object_id = id, .token = token};
    return caller.post(path::kPushObject, encode(request) + object_field(kPushedField, content.size()) + content);
  }

  int connected() const {
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(coordinator_.port()));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    return socket;
  }

  /// The head of a call of the first node, with a body of so many bytes.
  std::string signed_head(std::string_view call, size_t bytes) {
    const auto headers = bad_->signer.headers();
    return concat("POST /v1/fleet/", call, " HTTP/1.1\r\nHost: x\r\nflwr-public-key: ", headers.public_key,
                  "\r\nflwr-timestamp: ", headers.timestamp, "\r\nflwr-signature: ", headers.signature,
                  "\r\nContent-Type: application/protobuf\r\nContent-Length: ", bytes, "\r\n\r\n");
  }

  /// What the server says to bytes of any kind.
  std::string said_to(std::string_view bytes) const {
    const int socket = connected();
    ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    ::shutdown(socket, SHUT_WR);
    std::string text(65536, '\0');
    size_t size = 0;
    for (ssize_t got; size < text.size() && (got = ::recv(socket, text.data() + size, text.size() - size, 0)) > 0;)
      size += static_cast<size_t>(got);
    ::close(socket);
    return text.substr(0, size);
  }

  testing::Keys keys_;
  CoordinatorOptions options_;
  Coordinator coordinator_;
  NodeLink good_;
  std::optional<testing::RawCaller> bad_{};
  uint64_t id_ = 0;
};

TEST_F(Hostile, WithoutTlsABodyThatWasDamagedOnTheWayIsToBeSentAgain) {
  auto& caller = bad();
  const auto body = encode(PullMessagesRequest{id_});
  const auto said = [&](const std::string& digest) {
    const auto signature = caller.signer.headers();
    return said_to(concat(
        "POST ", path::kPullMessages, " HTTP/1.1\r\nhost: x\r\ncontent-type: application/protobuf\r\nflwr-public-key: ",
        signature.public_key, "\r\nflwr-timestamp: ", signature.timestamp, "\r\nflwr-signature: ", signature.signature,
        "\r\n", kDigestHeader, ": ", digest, "\r\ncontent-length: ", body.size(), "\r\n\r\n", body));
  };
  EXPECT_TRUE(said(sha256(body)).starts_with("HTTP/1.1 200 "));
  const auto damaged = said(sha256("another"));
  EXPECT_TRUE(damaged.starts_with("HTTP/1.1 503 ")) << damaged;
  EXPECT_NE(damaged.find("damaged on the way"), std::string::npos);
  EXPECT_NE(said(sha256(body)).find(concat(kDigestHeader, ": ", sha256(""))), std::string::npos) << "of the answer";
  expect_others_go_on();
}

TEST_F(Hostile, ClocksThatAreOffAreRefusedBothWays) {
  auto& caller = bad();
  const std::string body = encode(PullMessagesRequest{id_});
  for (const auto& [off, status] : {std::pair{6.0, 401}, {4.0, 200}, {-303.0, 200}, {-306.0, 401}}) {
    Signer signer(Key::load(keys_.file(0)));
    auto headers = signer.headers(now_seconds() + off);
    headers.instance.clear();  // as `caller`, which names none
    EXPECT_EQ(caller.client.post(path::kPullMessages, headers, body).status, status) << off;
  }
  expect_others_go_on();
}

TEST_F(Hostile, AStrangersKeyIsRefusedBeforeItsBodyIsRead) {
  make_key(keys_.folder.path() / "stranger.pem");
  testing::RawCaller stranger(coordinator_, keys_.folder.path() / "stranger.pem");
  const auto answer = stranger.post(path::kPushObject, std::string(size_t{8} << 20, 'x'));
  EXPECT_TRUE(answer.status == 401 || answer.status == 0) << answer.status;
  EXPECT_EQ(stranger.post(path::kRegister, encode(RegisterRequest{stranger.signer.public_key().pem()})).status, 401);
  expect_others_go_on();
}

TEST_F(Hostile, ANodeThatSpeaksForAnotherIsRefusedAndNamed) {
  auto& caller = bad();
  EXPECT_EQ(caller.post(path::kPullMessages, encode(PullMessagesRequest{good_.id()})).status, 401);
  EXPECT_EQ(caller.post(path::kDeactivate, encode(NodeId{good_.id()})).status, 401);
  EXPECT_TRUE(testing::is_online(coordinator_, good_.id()));
  EXPECT_EQ(info().refused, 2u);
  EXPECT_NE(info().last_refusal.find("in the name of node"), std::string::npos);
  const std::string other_pem = Key::load(keys_.file(1)).public_key().pem();
  EXPECT_EQ(caller.post(path::kActivate, encode(ActivateRequest{other_pem, 30})).status, 401);
  expect_others_go_on();
}

TEST_F(Hostile, BodiesOfAnotherKindOrPackedOrTooLargeAreRefused) {
  auto& caller = bad();
  EXPECT_EQ(caller.post(path::kPullMessages, "\xff\xff\xff").status, 400);
  EXPECT_EQ(caller.post(path::kPullMessages, "").status, 401) << "node 0 is nobody";
  const auto large = caller.post(path::kPushObject, std::string(size_t{3} << 20, 'x'));
  EXPECT_TRUE(large.status == 413 || large.status == 0) << large.status;
  EXPECT_EQ(caller.post("/v1/fleet/no-such-call", "").status, 404);
  EXPECT_EQ(caller.client.get("/v1/fleet/pull-messages").status, 404);
  const auto signed_head = [&](const std::string& more) {
    const auto headers = caller.signer.headers();
    return said_to(concat("POST /v1/fleet/pull-messages HTTP/1.1\r\nHost: x\r\nflwr-public-key: ", headers.public_key,
                          "\r\nflwr-timestamp: ", headers.timestamp, "\r\nflwr-signature: ", headers.signature, "\r\n",
                          more));
  };
  EXPECT_NE(signed_head("Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}").find("415"),
            std::string::npos);
  EXPECT_NE(signed_head("Content-Type: application/protobuf\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nxx")
                .find("415"),
            std::string::npos);
  EXPECT_NE(signed_head("Content-Type: application/protobuf; v=1\r\nContent-Length: 99999999999\r\n\r\nxx").find("413"),
            std::string::npos);
  for (const auto* length : {"2abc", "-2", "0x2", "2\r\nContent-Length: 2", "99999999999999999999999"})
    EXPECT_NE(signed_head(concat("Content-Type: application/protobuf\r\nContent-Length: ", length, "\r\n\r\nxx"))
                  .find("Content-Length is not one whole number"),
              std::string::npos)
        << length;
  EXPECT_NE(signed_head("Content-Type: application/protobuf\r\nContent-Length: 50\r\n\r\nxx").find("400"),
            std::string::npos)
      << "it ends early";
  expect_others_go_on();
}

TEST_F(Hostile, WhatIsNoHttpCostsAConnectionAndNothingElse) {
  said_to("\x16\x03\x01\x02\x00\x01");
  said_to(std::string(100'000, 'A'));
  said_to("GET / HTTP/1.1\r\n" + std::string(40'000, 'x') + ": y\r\n\r\n");
  std::string endless = "GET /health HTTP/1.1\r\n";
  for (int i = 0; i < 5000; ++i) endless += concat("x-", i, ": y\r\n");
  EXPECT_EQ(said_to(endless + "\r\n").find("200"), std::string::npos);
  EXPECT_NE(said_to("DELETE /v1/fleet/pull-messages HTTP/1.1\r\nHost: x\r\n\r\n").find("405"), std::string::npos);
  EXPECT_NE(said_to("GET /health HTTP/1.1\r\nHost: x\r\n\r\n").find("200"), std::string::npos);
  expect_others_go_on();
}

TEST_F(Hostile, ConnectionsThatSayNothingHoldNoThreadWhileOthersWait) {
  std::vector<int> sockets;
  for (int i = 0; i < 12; ++i) {
    sockets.push_back(connected());
    if (i % 2) ::send(sockets.back(), "POST /v1/fl", 11, MSG_NOSIGNAL);
  }
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(testing::RawCaller(coordinator_, keys_.file(1)).client.get("/health").status, 200)
      << "after twelve, on four threads";
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::duration<double>(kHeadSeconds))
      << "no head was waited for";
  expect_others_go_on();
  for (const int socket : sockets) ::close(socket);
}

/// Clients that send `text` at one byte per tenth of a second, and come back as soon as they are cut off.
class SlowClients {
 public:
  SlowClients(int port, int count, std::string begin, std::string text)
      : port_(port), begin_(std::move(begin)), text_(std::move(text)), sockets_(static_cast<size_t>(count), -1) {
    thread_ = std::jthread([this](const std::stop_token& stop) {
      for (size_t sent = 0; !stop.stop_requested(); ++sent) {
        for (int& socket : sockets_) drip(socket, text_[sent % text_.size()]);
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
      }
    });
  }
  ~SlowClients() {
    thread_.request_stop();
    thread_.join();
    for (const int socket : sockets_) ::close(socket);
  }

 private:
  void drip(int& socket, char byte) {
    if (socket >= 0 && ::send(socket, &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1) return;
    if (socket >= 0) ::close(socket);
    socket = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port_));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address);
    pollfd ready{.fd = socket, .events = POLLOUT, .revents = 0};
    ::poll(&ready, 1, 20);
    ::send(socket, begin_.data(), begin_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  int port_;
  std::string begin_, text_;
  std::vector<int> sockets_;
  std::jthread thread_;
};

/// Seconds of twenty instructions and replies of a node.
double seconds_of_work(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 20; ++i) work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

TEST_F(Hostile, ThreeHundredSlowHeadsDoNotKeepANodeWaiting) {
  const auto work = [this] { expect_others_go_on(); };
  const double alone = seconds_of_work(work);
  ::testing::internal::CaptureStderr();
  {
    const SlowClients slow(coordinator_.port(), 300, "POST /v1/fleet/push-messages HTTP/1.1\r\n", "x: y\r\n");
    std::this_thread::sleep_for(std::chrono::seconds(1));
    EXPECT_LT(seconds_of_work(work), 3 * alone + 2) << "alone: " << alone;
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
  const auto said = ::testing::internal::GetCapturedStderr();
  const auto first = said.find("connections have sent no whole request yet");
  EXPECT_NE(first, std::string::npos) << said;
  EXPECT_EQ(said.find("connections have sent no whole request yet", first + 1), std::string::npos) << "once";
}

TEST_F(Hostile, ThreeHundredSlowBodiesWithoutASignatureDoNotKeepANodeWaiting) {
  const auto work = [this] { expect_others_go_on(); };
  const double alone = seconds_of_work(work);
  const SlowClients slow(coordinator_.port(), 300,
                         "POST /v1/fleet/push-messages HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n", "x");
  std::this_thread::sleep_for(std::chrono::seconds(1));
  EXPECT_LT(seconds_of_work(work), 3 * alone + 4) << "alone: " << alone;
}

TEST_F(Hostile, AHeadInPiecesIsAnsweredLikeAWholeOne) {
  const int socket = connected();
  for (const std::string_view piece : {"GET /hea", "lth HTTP/1.1\r", "\nHost: x\r\n", "\r", "\n"}) {
    ::send(socket, piece.data(), piece.size(), MSG_NOSIGNAL);
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
  }
  std::string answer(4096, '\0');
  const ssize_t got = ::recv(socket, answer.data(), answer.size(), 0);
  EXPECT_NE(answer.substr(0, static_cast<size_t>(std::max<ssize_t>(got, 0))).find("200"), std::string::npos);
  ::close(socket);
}

TEST_F(Hostile, ABodyThatDripsIsCutOffAndItsNodeNamed) {
  bad();
  const int socket = connected();
  const auto head = signed_head("push-object", 1000);
  ::send(socket, head.data(), head.size(), MSG_NOSIGNAL);
  std::string answer(4096, '\0');
  const ssize_t got = ::recv(socket, answer.data(), answer.size(), 0);
  EXPECT_NE(answer.substr(0, static_cast<size_t>(std::max<ssize_t>(got, 0))).find("408"), std::string::npos);
  ::close(socket);
  EXPECT_EQ(info().last_refusal, "a body that came too slowly");
  expect_others_go_on();
}

TEST_F(Hostile, TenThousandSmallCallsAreCutShortForThatNodeAlone) {
  auto& caller = bad();
  const auto begin = std::chrono::steady_clock::now();
  int refused = 0;
  for (int i = 0; i < 10'000; ++i)
    refused += caller.post(path::kPullMessages, encode(PullMessagesRequest{id_})).status == 429;
  const double allowed = 100 + 50 * seconds_since(begin);  // a burst, and so many a second
  EXPECT_GE(refused, 10'000 - allowed - 1);
  EXPECT_GT(refused, 0);
  EXPECT_EQ(info().refused, static_cast<uint64_t>(refused));
  EXPECT_EQ(info().last_refusal, "more calls than a node may make");
  expect_others_go_on();
}

TEST_F(Hostile, ObjectsThatNobodyAskedForAreNotStored) {
  auto& caller = bad();
  const Metadata metadata = pulled(caller);
  const std::string content("ArrayChunk  3\0abc", 17);
  const auto answer = push(caller, metadata, "no token", object_id(content), content);
  EXPECT_FALSE(decode<PushObjectResponse>(answer.body).stored);
  EXPECT_NE(info().last_refusal.find("no reply on its way"), std::string::npos);
  const auto pulled =
      caller.post(path::kPullObject,
                  encode(ObjectRequest{.node = id_, .run_id = metadata.run_id, .object_id = object_id(content)}));
  EXPECT_FALSE(decode<PullObjectResponse>(pulled.body).found);
  EXPECT_EQ(caller.post(path::kConfirm, encode(ConfirmRequest{id_, 4711, "x"})).code, 2007) << "another run";
  expect_others_go_on();
}

/// A node whose connection broke before it had the answer to an object sends the object again.
TEST_F(Hostile, AnObjectOfTheLastWholeReplyIsStoredAlready) {
  auto& caller = bad();
  const Metadata metadata = pulled(caller);
  const Parcel parcel(metadata, Content());
  const auto token = announce(caller, envelope(parcel)).token;
  const auto is_stored = [&](const Object& object, const std::string& with) {
    std::string content = object.head;
    for (const auto piece : object.pieces) content.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    return decode<PushObjectResponse>(push(caller, metadata, with, object.id, content).body).stored;
  };
  for (int time = 0; time < 2; ++time)
    for (const Object* object : parcel.structure()) EXPECT_TRUE(is_stored(*object, token)) << time;
  const Object& last = *parcel.structure().back();
  EXPECT_FALSE(is_stored(last, "of another reply"));
  const auto arrival = coordinator_.wait(testing::patience());
  ASSERT_TRUE(arrival);
  EXPECT_EQ(arrival->kind, Arrival::Kind::kReply) << arrival->reason;
  expect_others_go_on();
  EXPECT_TRUE(is_stored(last, token)) << "also after another node's reply";
  coordinator_.end_run();
  EXPECT_TRUE(is_stored(last, token)) << "and after the run";
}

TEST_F(Hostile, AMessageIsGivenUpAtOnceAlthoughItsNodeReadsNothing) {
  auto& caller = bad();
  const OwnedArray array({"large", "uint16", {1 << 23}}, 1);
  Content content;
  content.add("arrays", pack_arrays(std::vector{array.data()}, {.chunk_bytes = size_t{16} << 20}));
  const auto id = coordinator_.send(id_, content, {});
  const Parcel parcel({}, content);
  const auto asked = caller.post(path::kPullMessages, encode(PullMessagesRequest{id_}));
  const uint64_t run = decode<PullMessagesResponse>(asked.body).message->metadata.run_id;
  const auto body = encode(ObjectRequest{.node = id_, .run_id = run, .object_id = parcel.chunks().front().front()->id});
  const int socket = connected();
  const auto request = concat(signed_head("pull-object", body.size()), body);
  ::send(socket, request.data(), request.size(), MSG_NOSIGNAL);
  char byte = 0;
  ASSERT_EQ(::recv(socket, &byte, 1, MSG_PEEK), 1) << "the answer has begun";
  const auto begin = std::chrono::steady_clock::now();
  coordinator_.forget(id);
  EXPECT_LT(seconds_since(begin), 2) << "a silent node is cut off after three seconds";
  ::close(socket);
  expect_others_go_on();
}

TEST_F(Hostile, AReplyNobodyAskedForIsRefusedWithoutAWord) {
  auto& caller = bad();
  Metadata metadata = pulled(caller);
  const auto refused = [&](const Metadata& changed) {
    const Parcel parcel(changed, Content());
    return announce(caller, envelope(parcel)).objects_to_push.empty();
  };
  Metadata other = metadata;
  other.reply_to = std::string(64, 'a');
  EXPECT_TRUE(refused(other));
  other = metadata;
  other.ttl = 2 * kMessageLife_s;
  EXPECT_TRUE(refused(other)) << "a time to live beyond the instruction's";
  other = metadata;
  other.src_node = good_.id();
  EXPECT_TRUE(refused(other));
  EXPECT_FALSE(refused(metadata));
  other = metadata;
  other.type = "another";
  EXPECT_TRUE(refused(other)) << "a second reply while the first is on its way";
  CallMessage neither = envelope(Parcel(metadata, Content()));
  neither.has_content = false;
  const auto answer = caller.post(path::kPushMessages, encode(PushMessagesRequest{.node = id_, .message = neither}));
  EXPECT_EQ(answer.status, 400);
  expect_others_go_on();
}

TEST_F(Hostile, AReplyThatLiesAboutItselfIsRefusedAndReported) {
  auto& caller = bad();
  const auto memory = std::make_shared<testing::Memory>();
  const Metadata metadata = pulled(caller, testing::Memory::into(memory));
  const testing::OwnedArray array({"a", "float32", {2, 300}}, 1);
  Content content;
  content.add("arrays", pack_arrays({array.data()}));
  const Parcel parcel(metadata, content);
  const auto response = announce(caller, envelope(parcel));
  for (const auto* object : parcel.structure()) push(caller, metadata, response.token, object->id, object->head);
  const Object& chunk = *parcel.chunks()[0][0];
  const auto damaged = push(caller, metadata, response.token, chunk.id, chunk.head + std::string(2400, 'x'));
  EXPECT_FALSE(decode<PushObjectResponse>(damaged.body).stored);
  EXPECT_NE(damaged.detail.find("is damaged"), std::string::npos);
  EXPECT_FALSE(coordinator_.wait(testing::in(0.1))) << "it may come again, whole";

  Tree deep = parcel.tree();
  for (int i = 0; i < 60; ++i) deep = {.id = std::string(64, 'a'), .children = {deep}};
  coordinator_.forget(metadata.reply_to);
  const Metadata again = pulled(caller);
  Metadata root = again;
  root.message_id = deep.id;
  EXPECT_TRUE(announce(caller, {.metadata = root, .has_content = true, .tree = deep}).objects_to_push.empty());
  const auto arrival = coordinator_.wait(testing::patience());
  ASSERT_TRUE(arrival);
  EXPECT_EQ(arrival->kind, Arrival::Kind::kRefused);
  EXPECT_NE(arrival->reason.find("more than 5 deep"), std::string::npos);
  expect_others_go_on();
}

TEST_F(Hostile, ATreeOfManyObjectsIsRefusedByItsNumber) {
  auto& caller = bad();
  const Metadata metadata = pulled(caller);
  Tree tree{.id = std::string(64, 'a')};
  tree.children.resize(options_.limits.objects + 1, {.id = std::string(64, 'b')});
  Metadata root = metadata;
  root.message_id = tree.id;
  const auto answer =
      caller.post(path::kPushMessages,
                  encode(PushMessagesRequest{
                      .node = id_, .message = CallMessage{.metadata = root, .has_content = true, .tree = tree}}));
  EXPECT_TRUE(answer.status == 200 || answer.status == 413 || answer.status == 0) << answer.status;
  expect_others_go_on();
}

TEST_F(Hostile, AReplyThatStopsHalfwayIsLostAfterItsLease) {
  const testing::Keys keys(1);
  auto options = testing::options_for(keys);
  options.lease_s = 0.3;
  Coordinator coordinator(options);
  testing::RawCaller caller(coordinator, keys.file(0));
  const uint64_t node = testing::id_of(coordinator, "node-0");
  caller.post(path::kActivate, encode(ActivateRequest{caller.signer.public_key().pem(), 10}));
  coordinator.send(node, Content(), {});
  const auto asked =
      decode<PullMessagesResponse>(caller.post(path::kPullMessages, encode(PullMessagesRequest{node})).body)
          .message->metadata;
  const Parcel parcel(
      {.run_id = asked.run_id, .src_node = node, .reply_to = asked.message_id, .ttl = 10, .created_at = now_seconds()},
      Content());
  caller.post(path::kPushMessages, encode(PushMessagesRequest{.node = node, .message = envelope(parcel)}));
  const auto arrival = coordinator.wait(testing::patience());
  ASSERT_TRUE(arrival);
  EXPECT_EQ(arrival->kind, Arrival::Kind::kLost);
  EXPECT_NE(arrival->reason.find("came no further"), std::string::npos);
}

TEST_F(Hostile, AServerSaysThatItLivesAndThatItIsReady) {
  auto& client = bad().client;
  for (const auto* page : {"/livez", "/readyz", "/health"}) EXPECT_EQ(client.get(page).status, 200) << page;
}

TEST_F(Hostile, MetricsCountWhatWasRefused) {
  auto& caller = bad();
  caller.post(path::kPullMessages, encode(PullMessagesRequest{good_.id()}));
  const auto answer = caller.client.get("/metrics");
  EXPECT_EQ(answer.status, 200);
  EXPECT_NE(answer.body.find("evenkeel_nodes_online 2\n"), std::string::npos) << answer.body;
  EXPECT_NE(answer.body.find("evenkeel_calls_refused_total 1\n"), std::string::npos);
}

}  // namespace
}  // namespace evenkeel::flower
