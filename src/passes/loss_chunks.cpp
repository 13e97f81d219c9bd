// Splits the head matmul, the loss and their gradients into training.loss_chunks chunks of the
// tokens, along time. The logits of a chunk are computed, used and freed before those of the next
// chunk, so the logits of the full batch never exist. Gradients of the head's weight are summed
// chunk by chunk.
//
//   %logits = matmul(%x, %w; tb=true)
//   %loss, %lse = cross_entropy(%logits, %targets, %count)
//   %d.logits = cross_entropy_grad(%loss_scale, %logits, %targets, %lse, %count)
//   %d.x = matmul(%d.logits, %w)
//   %d.w = matmul(%d.logits, %x; ta=true)
// becomes, for each chunk i,
//   %x.i = split_time(%x; index=i, parts=n)
//   %logits.i = matmul(%x.i, %w; tb=true)
//   %loss.i, %lse.i = cross_entropy(%logits.i, %targets.i, %count)
//   %d.logits.i = cross_entropy_grad(%loss_scale, %logits.i, %targets.i, %lse.i, %count)
//   %d.x.i = matmul(%d.logits.i, %w)
//   %d.w.i = matmul(%d.logits.i, %x.i; ta=true), added to the previous ones
// and at the end %d.x = concat_time(%d.x.0, ...).
#include <algorithm>
#include <unordered_set>

#include "base/error.h"
#include "graph/ops/ops.h"
#include "passes/pass.h"

namespace weft {

namespace {

// The nodes at the end of the model, and their gradients if any.
struct Head {
  Node* matmul = nullptr;
  Node* loss = nullptr;
  Node* loss_grad = nullptr;  // nullptr: no gradients
  Node* dx = nullptr;
  Node* dw = nullptr;
};

Node* find_loss(const Graph& graph) {
  for (const auto& node : graph.order()) {
    if (node->op == &kCrossEntropy) return node.get();
  }
  return nullptr;
}

Head find_head(Node* loss) {
  Head head;
  head.loss = loss;
  Value* logits = loss->operand("logits");
  head.matmul = logits->def;
  const bool plain = head.matmul->op == &kMatmul && head.matmul->operand("bias") == nullptr;
  USER_CHECK(plain && logits->type.shape.size() == 3, "loss_chunks: the loss reads %", logits->name,
             ", expected the matmul of a head without bias");
  for (Node* user : logits->users) {
    if (user == loss) continue;
    CHECK(user->op == &kCrossEntropyGrad && head.loss_grad == nullptr, "%", logits->name,
          " is read by ", user->op->name());
    head.loss_grad = user;
  }
  if (head.loss_grad == nullptr) return head;
  for (Node* user : head.loss_grad->result()->users) {
    CHECK(user->op == &kMatmul, "the gradient of the logits is read by ", user->op->name());
    const bool of_weight = std::get<bool>(user->attr("ta"));
    (of_weight ? head.dw : head.dx) = user;
  }
  CHECK(head.dx != nullptr && head.dw != nullptr, "a head without both gradients");
  return head;
}

constexpr int64_t kOneShard = 1;  // of time; place shards it

class Chunker {
 public:
  Chunker(Graph& graph, const Head& head, int64_t parts)
      : graph_(graph),
        head_(head),
        parts_(parts),
        before_(head.loss_grad != nullptr ? head.loss_grad : head.loss) {}

  void run() {
    for (int64_t index = 0; index < parts_; ++index) add_chunk(index);
    move_readers();
    graph_.replace_uses(head_.loss->result(), loss_);
    if (head_.loss_grad != nullptr) finish_gradients();
    graph_.erase(head_.loss);
    graph_.erase(head_.matmul);
  }

 private:
  void add_chunk(int64_t index) {
    Value* x = split(head_.matmul->operand("a"), index, *head_.matmul);
    Value* targets = split(head_.loss->operand("targets"), index, *head_.loss);
    Value* count = head_.loss->operand("count");
    Value* logits = copy(*head_.matmul, {x, head_.matmul->operand("b")}, index)->result();
    Node* loss = copy(*head_.loss, {logits, targets, count}, index);
    loss_ = index == 0 ? loss->result() : add(kAdd, loss_, loss->result(), *head_.loss);
    if (head_.loss_grad == nullptr) return;
    Value* dloss = head_.loss_grad->operand("dloss");
    Value* dlogits =
        copy(*head_.loss_grad, {dloss, logits, targets, loss->result("lse"), count}, index)
            ->result();
    dx_.push_back(copy(*head_.dx, {dlogits, head_.dx->operand("b")}, index)->result());
    // The operand order depends on the layout of the weight.
    const bool grad_first = head_.dw->operand("a") == head_.loss_grad->result();
    Value* dw =
        copy(*head_.dw, grad_first ? std::vector{dlogits, x} : std::vector{x, dlogits}, index)
            ->result();
    dw_ = index == 0 ? dw : add(kAddInPlace, dw_, dw, *head_.dw);
  }

  // What the forward adds to the loss comes after the chunks.
  void move_readers() {
    std::unordered_set<const Node*> readers = {head_.loss};
    for (Node* node : graph_.nodes()) {
      if (node == before_) return;
      const bool reads = std::any_of(node->operands.begin(), node->operands.end(),
                                     [&](const Value* x) { return readers.contains(x->def); });
      if (!reads) continue;
      readers.insert(node);
      graph_.move_before(node, before_);
    }
  }

  void finish_gradients() {
    Node* dx =
        graph_.insert(before_, kConcatTime, dx_, {Attr(kOneShard)}, options(*head_.dx, "full"));
    graph_.replace_uses(head_.dx->result(), dx->result());
    graph_.replace_uses(head_.dw->result(), dw_);
    for (Node* node : {head_.dx, head_.dw, head_.loss_grad}) graph_.erase(node);
  }

  // Names a node "<name of its result>.<suffix>" and keeps the module and phase of `of`.
  static NodeOptions options(const Node& of, const std::string& suffix) {
    return {.name = cat(of.result()->name, ".", suffix), .path = of.path, .phase = of.phase};
  }

  Node* copy(const Node& of, std::vector<Value*> operands, int64_t index) {
    return graph_.insert(before_, *of.op, std::move(operands), of.attrs, options(of, cat(index)));
  }

  Value* split(Value* x, int64_t index, const Node& reader) {
    NodeOptions named{.name = cat(x->name, ".", index), .path = reader.path, .phase = reader.phase};
    return graph_
        .insert(before_, kSplitTime, {x}, {Attr(index), Attr(parts_), Attr(kOneShard)}, named)
        ->result();
  }

  Value* add(const OpDef& op, Value* a, Value* b, const Node& of) {
    return graph_.insert(before_, op, {a, b}, {}, options(of, "sum"))->result();
  }

  Graph& graph_;
  const Head head_;
  const int64_t parts_;
  Node* before_;
  Value* loss_ = nullptr;
  Value* dw_ = nullptr;
  std::vector<Value*> dx_;
};

bool run(Graph& graph, PassContext& context) {
  const int64_t parts = context.config.training.loss_chunks;
  if (parts == 1) {
    context.note = "training.loss_chunks = 1";
    return false;
  }
  Node* loss = find_loss(graph);
  if (loss == nullptr) {
    context.note = "no loss";
    return false;
  }
  Chunker(graph, find_head(loss), parts).run();
  context.note = cat(parts, " chunks");
  return true;
}

}  // namespace

constexpr Pass loss_chunks{
    .name = "loss_chunks",
    .doc =
        "Splits the head matmul, the loss and their gradients into training.loss_chunks chunks of "
        "the tokens, so that the logits of the full batch never exist.",
    .needs = {},
    .gives = {},
    .run = run};

}  // namespace weft
