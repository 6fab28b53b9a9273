#include <stdio.h>
#include <string.h>
#include "conf/table.h"

#define AT(field) offsetof(struct conf, field)
#define BIG 9e15                                         /* below 2^53: exact in a double */
#define FALLS "train.schedule cosine linear polynomial"  /* rates that depend on the length of the run */

/* ---- words from lists of files in Makefile.am
 * ---------------------------------------------------------------------- */

static const char sources[] =
#define DATASET(x) #x " "
#include "registry.inc"
    "";
static const char optimizers[] =
#define OPTIM(x) #x " "
#include "registry.inc"
    "";
static const char schedules[] =
#define SCHEDULE_WORD(x) #x " "
#include "registry.inc"
    "rows";
static const char rates[] =
#define RATE(x) #x " "
#include "registry.inc"
    "";
static const char partitions[] =
#define PARTITION(x) #x " "
#include "registry.inc"
    "";
static const char devices[] = "auto cpu "
#define BACKEND_WORD(x) #x " "
#include "registry.inc"
    "";
static const char transports[] = "auto "
#define TRANSPORT_WORD(x) #x " "
#include "registry.inc"
    "";

/* ---- the table --------------------------------------------------------------------------------------------------- */

/* key, type, field, default, minimum and maximum or .words, .text */
const struct opt opt_table[] = {
    {"run.name", OPT_STRING, AT(run.name), "run", .text = "name of the run"},
    {"run.seed", OPT_INT, AT(run.seed), "1", 0, BIG,
     .bits = true, .text = "seed of initialisation, sample order, dropout and synthetic data"},
    {"run.directory", OPT_FILE, AT(run.directory), NULL, .written = true,
     .text = "run directory; the default is runs/NAME"},
    {"run.device", OPT_ENUM, AT(run.device), "auto", .words = devices,
     .text = "device: auto uses the best available one; reference is the slow plain C backend"},
    {"run.transport", OPT_ENUM, AT(run.transport), "auto", .words = transports,
     .text = "how ranks exchange tensors: mpi between processes, local between threads of one process; between GPUs "
             "nccl, or staged through host memory"},
    {"run.transfer_timeout", OPT_INT, AT(run.transfer_timeout), "0", 0, 86400,
     .text = "with nccl: seconds without progress after which a transfer ends the run; 0: 5 more than "
             "run.hang_timeout, at least 8, and 60 on several hosts. Raise it for very large tensors or ranks in "
             "debuggers"},
    {"run.hang_timeout", OPT_INT, AT(run.hang_timeout), "10", 0, 86400,
     .text = "seconds after which a rank that is not responding ends the run with status 81; in a step also five "
             "times the slowest step, before a rank's first step thirty times this value. 0: never. See HANGS in "
             "mpstaged(8)"},
    {"run.stop_before_end", OPT_INT, AT(run.stop_before_end), "120", 0, 86400,
     .text = "under Slurm: seconds before the end of the job (SLURM_JOB_END_TIME) at which training stops with a "
             "checkpoint and status 75; at most half of the time left at the start. 0: never"},
    {"run.verify_every", OPT_INT, AT(run.verify_every), "0", 0, BIG,
     .text = "compute every Nth step twice and end with status 80 unless loss and gradient norms have the same "
             "bits; finds silent data corruption by faulty hardware. 0: never"},
    {"run.nccl_max_ctas", OPT_INT, AT(run.nccl_max_ctas), "4", 1, 32,
     .text = "with nccl: thread blocks per link, rounded down to a power of two; more speed up large transfers and "
             "slow down kernels, and each takes 10 MiB per neighbour and direction. Ranks that share a GPU use at "
             "most 2"},
    {"run.allow_shared_gpu", OPT_BOOL, AT(run.allow_shared_gpu), "no",
     .text = "let several ranks share a GPU: right results, no speed"},
    {"run.kernel_table", OPT_FILE, AT(run.kernel_table), NULL,
     .text = "on GPUs: file with the fastest library kernel of each layer; rank 0 measures and writes it if it is "
             "missing. Runs with the same file have the same bits. A file of another GPU or other libraries is "
             "refused"},
    {"run.try_compiled", OPT_BOOL, AT(run.try_compiled), "no",
     .text = "when run.kernel_table is measured, also try kernels that cuDNN compiles at each start; each takes a "
             "second or two, in every run that uses it"},
    {"run.kernel_candidates", OPT_ENUM, AT(run.kernel_candidates), "some", .words = WORDS_CANDIDATES(WORD_TEXT),
     .text = "which kernels run.kernel_table measures: some: the first eight of cuDNN's heuristics A; all: every "
             "one of heuristics A and B, which takes several times as long"},
    {"run.graphs", OPT_BOOL, AT(run.graphs), "yes",
     .text = "on GPUs: record the kernels of each action as a CUDA graph before the first step and replay it; no: "
             "launch them one by one"},
    {"run.kernel_times", OPT_BOOL, AT(run.kernel_times), "yes",
     .text = "on GPUs: run kernels one by one in the first two steps and every 32nd, to time them; no: every step "
             "is a replay, and the time of joined backward passes is divided evenly"},
    {"run.emulate_bf16", OPT_ENUM, AT(run.emulate_bf16), "auto", .words = WORDS_WHEN(WORD_TEXT),
     .text = "compute in fp32 what train.precision bf16 stores in bf16. auto: on Intel processors with avx512_bf16 but "
             "without AMX, where that is faster. yes: also on those that have neither; auto refuses them. no: on none"},
    {"run.threads", OPT_INT, AT(run.threads), "1", 1, 1024,
     .bits = true, .text = "computing threads of each rank; decides results, so it is never derived from the machine"},
    {"run.init_from", OPT_FILE, AT(run.init_from), NULL,
     .text = "initial weights: a safetensors file, a folder with one or with an index, or a run directory; F16, BF16 "
             "and F64 become F32. Prefixes of PyTorch's wrappers (module., _orig_mod., model.) are ignored. "
             "See INITIAL WEIGHTS"},
    {"run.init_rename", OPT_TEXTS, AT(run.init_rename), NULL,
     .text = "rules \"PATTERN -> NAME\" for names in run.init_from, such as \"backbone.* -> *\"; the first rule "
             "that matches a name applies. See INITIAL WEIGHTS"},
    {"run.init_missing", OPT_TEXTS, AT(run.init_missing), NULL,
     .text = "patterns of weights that run.init_from may lack or have in another shape, such as \"fc\"; these are "
             "initialised as in a new run"},
    {"run.init_extra", OPT_TEXTS, AT(run.init_extra), NULL,
     .text = "patterns of tensors in run.init_from to ignore because the model has none of that name"},
    {"run.overwrite", OPT_BOOL, AT(run.overwrite), "no",
     .text = "replace the results of an earlier run in the run directory; its weights are removed when new ones are "
             "written"},
    {"run.resume", OPT_ENUM, AT(run.resume), "no", .words = WORDS_RESUME(WORD_TEXT),
     .text = "resume from the newest valid checkpoint of the run directory, or start if it has neither checkpoints "
             "nor weights; force: also with changed settings that change results"},
    {"run.evaluate", OPT_BOOL, AT(run.evaluate), "no",
     .text = "only evaluate the weights of run.init_from on the test samples"},
    {"run.predict", OPT_FILE, AT(run.predict), NULL, .written = true,
     .text = "only predict: write the network's output for each test sample to FILE.csv, FILE.jsonl or FILE.npy, or "
             "label maps of volumes to FOLDER/; weights are those of run.init_from or of the run directory. See "
             "PREDICTIONS"},
    {"run.predict_tensor", OPT_STRING, AT(run.predict_tensor), NULL,
     .text = "predictions: write this tensor of the network, such as features, instead of the output; names are "
             "those of --print-graph"},
    {"run.generate", OPT_FILE, AT(run.generate), NULL, .written = true,
     .text = "only generate: continue prompts and write the texts as JSON lines to FILE.jsonl, or with - to standard "
             "output; weights are those of run.init_from or of the run directory. See LANGUAGE MODELS"},
    {"run.dump_gradients", OPT_FILE, AT(run.dump_gradients), NULL, .written = true,
     .text = "write the first step's gradients to this safetensors file"},
    {"run.trace", OPT_FILE, AT(run.trace), NULL, .written = true,
     .text = "write what every rank does in some steps to this file, for Perfetto"},
    {"run.trace_steps", OPT_INT, AT(run.trace_steps), "3", 1, 1000,
     .text = "number of steps in run.trace, from the second on, or the first if there is only one"},
    {"model.network", OPT_STRING, AT(model.network), NULL,
     .bits = true, .text = "built-in network, see NETWORKS"},
    {"model.graph", OPT_FILE, AT(model.graph), NULL,
     .text = "file with graph text, or an ONNX file FILE.onnx with weights, instead of a network; it decides input, "
             "classes and loss"},
    {"model.input", OPT_INTS, AT(model.input), NULL, 1, 1 << 24, .bits = true,
     .text = "shape of one sample, channels first; the default is the network's own, and only mlp takes another "
             "number of dimensions"},
    {"model.classes", OPT_INT, AT(model.classes), NULL, 1, 1 << 24,
     .bits = true, .text = "number of outputs; the default is the network's own"},
    {"model.hidden", OPT_INTS, AT(model.hidden), NULL, 1, 1 << 24, .bits = true,
     .text = "mlp: widths of the hidden layers"},
    {"model.dropout", OPT_REAL, AT(model.dropout), "0", 0, 0.999, .bits = true,
     .text = "dropout probability after each hidden layer of an mlp, and of a decoder's branches and embedding"},
    {"model.zero_init_residual", OPT_BOOL, AT(model.zero_init_residual), "no",
     .bits = true, .text = "ResNets: initialise the last batch norm of each block with zero"},
    {"model.small_stem", OPT_BOOL, AT(model.small_stem), "no",
     .bits = true,
     .text = "ResNets, for pictures as small as 32x32: a first convolution of 3x3 with stride 1 and no pooling, so "
             "that layer1 sees every pixel"},
    {"model.folder", OPT_FILE, AT(model.folder), NULL,
     .text = "folder of a decoder as Hugging Face has it, instead of a network: its config.json is the network, its "
             "weights are the default of run.init_from, its tokenizer that of data.tokenizer. See LANGUAGE MODELS"},
    {"model.config", OPT_FILE, AT(model.config), NULL,
     .text = "config.json of a decoder, or a folder with one, instead of a network; only the network, from scratch"},
    {"model.vocab_size", OPT_INT, AT(model.vocab_size), NULL, 1, 1 << 24, .bits = true,
     .text = "decoders: number of tokens"},
    {"model.hidden_size", OPT_INT, AT(model.hidden_size), NULL, 1, 1 << 24, .bits = true,
     .text = "decoders: channels between layers"},
    {"model.intermediate_size", OPT_INT, AT(model.intermediate_size), NULL, 1, 1 << 24, .bits = true,
     .text = "decoders: channels inside a layer's MLP; gpt2: the default is four times model.hidden_size"},
    {"model.num_hidden_layers", OPT_INT, AT(model.num_hidden_layers), NULL, 1, 1 << 12, .bits = true,
     .text = "decoders: number of layers"},
    {"model.num_attention_heads", OPT_INT, AT(model.num_attention_heads), NULL, 1, 1 << 16, .bits = true,
     .text = "decoders: heads of queries"},
    {"model.num_key_value_heads", OPT_INT, AT(model.num_key_value_heads), NULL, 1, 1 << 16, .bits = true,
     .text = "decoders: heads of keys and values; the default is as many as of queries"},
    {"model.head_dim", OPT_INT, AT(model.head_dim), NULL, 1, 1 << 16, .bits = true,
     .text = "decoders: channels of a head; the default is model.hidden_size by heads, of qwen3 128"},
    {"model.rms_norm_eps", OPT_REAL, AT(model.rms_norm_eps), NULL, 1e-12, 1, .bits = true,
     .text = "decoders: added under the root of a norm; the default is 1e-6, of gpt2 1e-5"},
    {"model.rope_theta", OPT_REAL, AT(model.rope_theta), NULL, 1, 1e12, .bits = true,
     .text = "decoders: base of the wave lengths of rotary positions; the default is 10000"},
    {"model.tie_word_embeddings", OPT_ENUM, AT(model.tie_word_embeddings), NULL, .words = WORDS_TIE(WORD_TEXT),
     .bits = true, .text = "decoders: the head has the embedding's weights; the default is yes of gpt2, no of others"},
    {"model.max_position_embeddings", OPT_INT, AT(model.max_position_embeddings), NULL, 1, 1 << 30, .bits = true,
     .text = "decoders: the longest sequence, and of gpt2 the number of positions; the default is model.input"},
    {"model.load_in_8bit", OPT_ENUM, AT(model.load_in_8bit), "auto", .words = WORDS_WHEN(WORD_TEXT), .bits = true,
     .text = "store the frozen weights of linear layers but the head in 8 bits, with a factor for each row, as "
             "bitsandbytes does; auto: if the folder does. Layers compute with the rounded values. Only on CPUs"},
    {"model.save_dtype", OPT_ENUM, AT(model.save_dtype), "auto", .words = WORDS_SAVE(WORD_TEXT),
     .text = "type of the weights in the folder model of the run directory; auto: that of model.folder, or fp32; int8: "
             "linear layers but the head as bitsandbytes' codes, the rest as auto"},
    {"model.max_shard_size", OPT_INT, AT(model.max_shard_size), "50000000000", 1, BIG,
     .text = "bytes of a file of weights there; more become several files and an index; of --write-onnx, two files"},
#include "conf/table_data.h"
    {"train.batch_size", OPT_INT, AT(train.batch_size), "32", 1, 1 << 24,
     .bits = true, .text = "samples per optimizer step, or all if there are fewer; see train.last_batch"},
    {"train.last_batch", OPT_ENUM, AT(train.last_batch), "short", .words = WORDS_LAST_BATCH(WORD_TEXT),
     .text = "samples at the end of an epoch that do not fill a batch: short makes a smaller batch, drop omits "
             "them, fill adds samples of the next epoch; decides results unless batches fill each epoch"},
    {"train.split_size", OPT_INT, AT(train.split_size), "0", 0, 1 << 24,
     .bits = true, .text = "samples per micro-batch; 0: the whole batch"},
    {"train.gradient_groups", OPT_INT, AT(train.gradient_groups), "1", 1, 4096,
     .text = "a power of two: number of blocks of micro-batches whose gradients are added in pairs; decides results"},
    {"train.steps", OPT_INT, AT(train.steps), "0", 0, BIG, .bits_of = FALLS,
     .text = "stop after this many optimizer steps, whatever train.epochs is; does not change which samples a step "
             "has"},
    {"train.epochs", OPT_INT, AT(train.epochs), "0", 0, BIG, .bits_of = FALLS,
     .text = "number of passes over the training samples"},
    {"train.evaluate", OPT_BOOL, AT(train.evaluate), "yes",
     .text = "evaluate on the test set while training and at the end; no: never"},
    {"train.evaluate_every", OPT_INT, AT(train.evaluate_every), "0", 0, BIG,
     .live = true,
     .text = "evaluate on the test set every N steps; 0: not by steps. The end of the run evaluates in any case"},
    {"train.evaluate_epochs", OPT_INT, AT(train.evaluate_epochs), "0", 0, BIG,
     .live = true, .text = "evaluate on the test set after every Nth epoch; 0: not by epochs"},
    {"train.confusion", OPT_BOOL, AT(train.confusion), "no",
     .text = "count in each evaluation which class was predicted for which; writes confusion.csv and confusion.png "
             "to the run directory"},
    {"train.patience", OPT_INT, AT(train.patience), "0", 0, BIG,
     .text = "end the run after this many evaluations without improvement of checkpoint.best, whose default is then "
             "loss. 0: never"},
    {"train.evaluate_batch_size", OPT_INT, AT(train.evaluate_batch_size), "0", 0, 1 << 24,
     .text = "samples per evaluation step; 0: train.batch_size"},
    {"train.loss", OPT_ENUM, AT(train.loss), NULL, .words = WORDS_LOSS(WORD_TEXT) "!batch_dice",
     .why = "Dice over the batch is not a mean over samples: it needs the sums of all micro-batches before the first "
            "backward pass; dice has one of each sample",
     .bits = true,
     .text = "loss function; dice and dice_ce (Dice plus cross-entropy) are computed per sample on maps of classes. "
             "The default is that of model.graph, otherwise cross_entropy"},
    {"train.dice_power", OPT_INT, AT(train.dice_power), "1", 1, 2, .of = "train.loss dice dice_ce", .bits = true,
     .text = "Dice: power of probabilities and targets in the denominator"},
    {"train.dice_background", OPT_BOOL, AT(train.dice_background), "yes", .of = "train.loss dice dice_ce",
     .bits = true, .text = "Dice: class 0 counts, too"},
    {"train.label_smoothing", OPT_REAL, AT(train.label_smoothing), "0", 0, 1, .of = "train.loss cross_entropy",
     .bits = true,
     .text = "share of every target that is spread evenly over all classes, in training and evaluation: torch's "
             "label_smoothing"},
    {"train.scores", OPT_TEXTS, AT(train.scores), NULL,
     .text = "score operators besides the loss, such as mean_absolute_error; all reports show them"},
    {"train.optimizer", OPT_ENUM, AT(train.optimizer), "sgd", .words = optimizers,
     .bits = true, .text = "optimizer"},
    {"train.learning_rate", OPT_REAL, AT(train.learning_rate), "0.01", 0, 1e6, .bits = true, .live = true,
     .text = "learning rate"},
    {"train.momentum", OPT_REAL, AT(train.momentum), "0", 0, 1, .of = "train.optimizer sgd rmsprop",
     .bits = true, .text = "sgd and rmsprop: momentum"},
    {"train.nesterov", OPT_BOOL, AT(train.nesterov), "no", .of = "train.optimizer sgd",
     .bits = true, .text = "sgd: Nesterov momentum"},
    {"train.beta1", OPT_REAL, AT(train.beta1), "0.9", 0, 0.999999999, .of = "train.optimizer adamw adam lamb",
     .bits = true, .text = "adamw, adam and lamb: decay of the running mean of gradients"},
    {"train.beta2", OPT_REAL, AT(train.beta2), "0.999", 0, 0.999999999,
     .of = "train.optimizer adamw adam lamb rmsprop",
     .bits = true,
     .text = "adamw, adam, lamb and rmsprop: decay of the running mean of squared gradients; torch's rmsprop calls "
             "it alpha, with default 0.99"},
    {"train.epsilon", OPT_REAL, AT(train.epsilon), "1e-08", 1e-30, 1e6,
     .of = "train.optimizer adamw adam lamb rmsprop",
     .bits = true, .text = "adamw, adam, lamb and rmsprop: added to the root of that mean, which divides updates"},
    {"train.weight_decay", OPT_REAL, AT(train.weight_decay), "0", 0, 1e6,
     .bits = true, .text = "weight decay of all parameters; torch's default for AdamW is 0.01"},
    {"train.freeze", OPT_TEXTS, AT(train.freeze), NULL, .bits = true,
     .text = "weights that are not trained: names of layers (layer1, layer1.0), or patterns (layer*.bias) of names, "
             "classes or operators; see PARAMETER GROUPS"},
    {"train.frozen_type", OPT_ENUM, AT(train.frozen_type), "fp32", .words = WORDS_STORED_TYPE(WORD_TEXT), .bits = true,
     .text = "how frozen weights are stored: bf16 and fp16 round them, int8 stores codes with a factor for each row. "
             "Biases and norms stay in fp32. GPUs take bf16 alone, with train.precision = bf16"},
    {"train.learning_rate_factors", OPT_TEXTS, AT(train.learning_rate_factors), NULL, .bits = true,
     .text = "\"PATTERN=FACTOR\": factor on the learning rate of weights that match; the last match applies"},
    {"train.weight_decay_factors", OPT_TEXTS, AT(train.weight_decay_factors), NULL, .bits = true,
     .text = "\"PATTERN=FACTOR\": factor on the weight decay of weights that match; {\"*.bias=0\", "
             "\"batch_norm=0\"} excludes biases and norms"},
    {"train.ema", OPT_REAL, AT(train.ema), "0", 0, 0.999999999, .bits = true,
     .text = "decay, such as 0.999, of an exponential moving average of the weights, which evaluations and "
             "weights.safetensors use; checkpoints have both. 0: none"},
    {"train.clip_norm", OPT_REAL, AT(train.clip_norm), "0", 0, 1e9,
     .bits = true, .text = "scale gradients down to this global norm; 0: never"},
    {"train.clip_value", OPT_REAL, AT(train.clip_value), "0", 0, 1e9, .bits = true,
     .text = "then clip each element of a gradient to plus or minus this; 0: never"},
    {"train.nonfinite", OPT_ENUM, AT(train.nonfinite), "stop", .words = WORDS_NONFINITE(WORD_TEXT),
     .text = "if loss or gradient is not finite: stop ends the run, skip omits the update, rollback returns to the "
             "newest checkpoint and omits the batches from there to that step"},
    {"train.nonfinite_limit", OPT_INT, AT(train.nonfinite_limit), "3", 1, BIG,
     .text = "nonfinite skip: most steps skipped in a row; nonfinite rollback: most returns to the same checkpoint. "
             "Beyond it the run ends"},
    {"train.schedule", OPT_ENUM, AT(train.schedule), "constant", .words = rates,
     .bits = true, .live = true, .text = "learning rate schedule after the warm-up"},
    {"train.schedule_by", OPT_ENUM, AT(train.schedule_by), "step", .words = WORDS_SCHEDULE_BY(WORD_TEXT),
     .bits = true, .live = true,
     .text = "unit of the learning rate schedule: optimizer steps, or epochs with a constant rate in each"},
    {"train.learning_rate_end", OPT_REAL, AT(train.learning_rate_end), "0", 0, 1e6, .bits = true, .live = true,
     .of = FALLS, .text = "schedules cosine, linear and polynomial: rate at the end of the run"},
    {"train.power", OPT_REAL, AT(train.power), "1", 0, 100, .bits = true, .live = true,
     .of = "train.schedule polynomial", .text = "schedule polynomial: its power"},
    {"train.milestones", OPT_INTS, AT(train.milestones), NULL, 1, BIG, .bits = true, .live = true,
     .of = "train.schedule step",
     .text = "schedule step: steps or epochs, counted from the end of the warm-up, after which the learning rate is "
             "multiplied by gamma"},
    {"train.step_size", OPT_INT, AT(train.step_size), "0", 0, BIG, .bits = true, .live = true,
     .of = "train.schedule step",
     .text = "schedule step: multiply the learning rate by gamma every N steps or epochs, instead of at milestones"},
    {"train.gamma", OPT_REAL, AT(train.gamma), NULL, 0, 1, .bits = true, .live = true, .of = "train.schedule step",
     .text = "schedule step: factor of the learning rate; the default is 0.1"},
    {"train.warmup_steps", OPT_INT, AT(train.warmup_steps), "0", 0, BIG, .bits = true, .live = true,
     .text = "warm-up: steps over which the learning rate rises linearly from warmup_factor times itself; then the "
             "schedule begins"},
    {"train.warmup_epochs", OPT_INT, AT(train.warmup_epochs), "0", 0, BIG, .bits = true, .live = true,
     .text = "warm-up in epochs, instead of warmup_steps; the rate rises every step, or every epoch with "
             "schedule_by epoch"},
    {"train.warmup_factor", OPT_REAL, AT(train.warmup_factor), "0.01", 0, 1, .bits = true, .live = true,
     .text = "warm-up: factor of the learning rate in the first step"},
    {"train.batch_norm", OPT_ENUM, AT(train.batch_norm), "micro", .words = WORDS_NORM_STATS(WORD_TEXT),
     .bits = true, .text = "running statistics: updated by every micro-batch, once per step, or never"},
    {"train.precision", OPT_ENUM, AT(train.precision), "fp32", .words = WORDS_PRECISION(WORD_TEXT) "!fp16",
     .bits = true,
     .text = "arithmetic: fp32, bf16, on GPUs tf32; tf32 rounds the factors of products; bf16 stores activations and "
             "their gradients in bfloat16, and all else in fp32. On CPUs generation then computes in fp32 on copies"},
    {"train.winograd", OPT_BOOL, AT(train.winograd), "no", .bits = true,
     .text = "on CPUs in fp32: compute 3x3 convolutions of pictures by Winograd's algorithm where that is faster; it "
             "rounds a little worse"},
    {"lora.rank", OPT_INT, AT(lora.rank), NULL, 1, 1 << 16, .bits = true,
     .text = "train low-rank adapters of this rank beside layers, and nothing else. See ADAPTERS"},
    {"lora.alpha", OPT_REAL, AT(lora.alpha), NULL, 1e-6, 1e6, .bits = true,
     .text = "an adapter's output is multiplied by this number over lora.rank; the default is lora.rank"},
    {"lora.rslora", OPT_BOOL, AT(lora.rslora), NULL, .bits = true,
     .text = "yes: multiply by lora.alpha over the root of lora.rank instead"},
    {"lora.dropout", OPT_REAL, AT(lora.dropout), NULL, 0, 0.999, .bits = true,
     .text = "dropout probability of an adapter's input; the default is 0"},
    {"lora.targets", OPT_TEXTS, AT(lora.targets), NULL, .bits = true,
     .text = "layers that get adapters: names or their last parts, such as {\"q_proj\", \"v_proj\"}; the default, "
             "all-linear, is all linear layers but the last"},
    {"lora.init_from", OPT_FILE, AT(lora.init_from), NULL,
     .text = "initial adapters: a folder as peft writes it, or a run directory. Settings of lora that are not set are "
             "those of its adapter_config.json"},
    {"lora.other_base", OPT_BOOL, AT(lora.other_base), "no",
     .text = "yes: take adapters of lora.init_from although they were trained with other base weights"},
    {"lora.merge", OPT_BOOL, AT(lora.merge), "no",
     .text = "also write the weights with the adapters added to them, as folder model of the run directory"},
    {"pipeline.schedule", OPT_WORD, AT(pipeline.schedule), "1f1b", .words = schedules,
     .text = "order of forward and backward passes; rows: from the file pipeline.rows"},
    {"pipeline.rows", OPT_FILE, AT(pipeline.rows), NULL,
     .text = "schedule rows: file with a row of actions per rank, see FILE FORMAT in mpstaged-schedule(5)"},
    {"pipeline.partition", OPT_ENUM, AT(pipeline.partition), NULL, .words = partitions,
     .text = "how layers are assigned to stages; the default is manual with stage sections, otherwise uniform"},
    {"pipeline.stages", OPT_INT, AT(pipeline.stages), NULL, 1, 4096,
     .text = "number of stages; the default is the number of stage sections under partition manual and without "
             "mpirun, otherwise the ranks of a replica"},
    {"pipeline.ranks", OPT_INT, AT(pipeline.ranks), NULL, 1, 4096,
     .text = "without mpirun: ranks of each replica, as threads or to plan for; the default is one per stage"},
    {"pipeline.cores", OPT_INT, AT(pipeline.cores), NULL, 1, 65536,
     .text = "--plan=search: cores for replicas, ranks and threads, or GPUs for replicas and ranks; the default is "
             "what the configured ranks or mpirun's use, otherwise all usable cores, or one GPU"},
    {"pipeline.in_flight", OPT_INT, AT(pipeline.in_flight), NULL, 1, 65535,
     .text = "most micro-batches that a rank keeps for their backward pass; the default is what the "
             "schedule needs, see mpstaged-schedule(5)"},
    {"pipeline.backward", OPT_ENUM, AT(pipeline.backward), "auto", .words = WORDS_BACKWARD(WORD_TEXT),
     .text = "gradients of inputs and weights in one pass, or split so that the former are sent early"},
    {"pipeline.profile", OPT_FILE, AT(pipeline.profile), NULL,
     .text = "file of costs measured by --profile; by default costs are estimated. --profile itself adds its costs "
             "to those of this file for other numbers of threads"},
    {"pipeline.profile_sizes", OPT_INTS, AT(pipeline.profile_sizes), NULL, 1, 1 << 24,
     .text = "micro-batch sizes that --profile measures; the default is 1/4, 1/2, 1 and 2 times the split size, "
             "without a single sample if a batch norm would see one value per channel"},
    {"pipeline.profile_spread", OPT_REAL, AT(pipeline.profile_spread), "2", 1, 1e9,
     .text = "largest ratio of kernel times to the shortest ones at which --profile writes a profile and plans use "
             "it; other programs raise it. Above 1.3 there is a warning"},
    {"pipeline.recompute", OPT_ENUM, AT(pipeline.recompute), "none", .words = WORDS_RECOMPUTE(WORD_TEXT),
     .text = "activations to recompute in the backward pass instead of keeping them: none, all, or as few as "
             "pipeline.max_memory requires (auto)"},
    {"pipeline.recompute_layers", OPT_TEXTS, AT(pipeline.recompute_layers), NULL,
     .text = "layers to recompute in any case; a name includes everything below it"},
    {"pipeline.recompute_stages", OPT_INTS, AT(pipeline.recompute_stages), NULL, 0, 4095,
     .text = "stages, from 0, to recompute in any case"},
    {"pipeline.replicas", OPT_INT, AT(pipeline.replicas), "1", 1, MAX_DP,
     .text = "copies of the pipeline that share each batch (data parallelism), a power of two that divides "
             "train.gradient_groups; needs that many times the ranks, on GPUs one each"},
    {"pipeline.bucket_kib", OPT_INT, AT(pipeline.bucket_kib), "4096", 0, 1 << 30,
     .text = "replicas exchange gradients in buckets of about this many KiB, each when its gradients are final; 0: "
             "all at once"},
    {"pipeline.reduce", OPT_ENUM, AT(pipeline.reduce), "tree", .words = WORDS_REDUCE(WORD_TEXT),
     .text = "how gradients of replicas are added: tree, with the same bits for any number of replicas, or on GPUs "
             "nccl, whose rounding depends on replicas, buckets, stages and NCCL"},
    {"pipeline.shard_optimizer", OPT_ENUM, AT(pipeline.shard_optimizer), "auto", .words = WORDS_WHEN(WORD_TEXT),
     .text = "each replica keeps the optimizer state of its share of the weights and updates these (ZeRO stage 1); "
             "results do not change. auto: on CPUs, unless one weight exceeds half of all trained"},
    {"pipeline.read_in_place", OPT_BOOL, AT(pipeline.read_in_place), "yes",
     .text = "on CPUs: replicas of one host read each other's gradients and weights in shared memory instead of "
             "sending them; results do not change"},
    {"pipeline.max_memory", OPT_SIZES, AT(pipeline.max_memory), NULL, 0, BIG,
     .text = "memory limit of a rank: one size for all, or one per rank of a replica; by default the host's memory "
             "on CPUs, and none on GPUs"},
    {"pipeline.disk", OPT_FILE, AT(pipeline.disk), NULL, .written = true,
     .text = "folder for frozen weights beyond pipeline.max_memory, or beyond the host's memory: each rank keeps them "
             "in a file there and reads them as it needs them; results do not change"},
    {"pipeline.offload_optimizer", OPT_ENUM, AT(pipeline.offload_optimizer), "auto", .words = WORDS_WHEN(WORD_TEXT),
     .text = "keep the optimizer's state in pipeline.host_memory of GPUs, or a file of pipeline.disk, with one "
             "replica; results do not change. auto: if limits are exceeded even with frozen weights there; then "
             "trained ones, too"},
    {"pipeline.speed", OPT_REALS, AT(pipeline.speed), NULL, 1e-6, 1e6,
     .text = "speed of each rank's device, relative to that of the costs; the default is 1 for all"},
    {"pipeline.no_split", OPT_TEXTS, AT(pipeline.no_split), NULL,
     .text = "blocks that stay on one stage under auto, balanced, balanced_low_0 and sequential: names (layer1.0) "
             "or classes (Bottleneck)"},
    {"pipeline.count_bytes", OPT_ENUM, AT(pipeline.count_bytes), "training", .words = WORDS_COUNT_BYTES(WORD_TEXT),
     .text = "what balanced, balanced_low_0 and sequential divide: all memory of training, or only weights and "
             "statistics"},
    {"pipeline.host_memory", OPT_SIZES, AT(pipeline.host_memory), NULL, 0, BIG,
     .text = "on GPUs: pinned memory of the host for weights and optimizer state beyond pipeline.max_memory, of all "
             "ranks of a replica together; what is more goes to pipeline.disk. On CPUs only --plan takes it, for a "
             "device map"},
    {"checkpoint.every_steps", OPT_INT, AT(checkpoint.every_steps), "0", 0, BIG, .live = true,
     .text = "write a checkpoint every N steps and after the last; 0: not by steps"},
    {"checkpoint.every_seconds", OPT_REAL, AT(checkpoint.every_seconds), "0", 0, 1e9, .live = true,
     .text = "write a checkpoint when this many seconds have passed since the last one, and after the last step; 0: "
             "not by time"},
    {"checkpoint.keep", OPT_INT, AT(checkpoint.keep), "3", 1, BIG, .live = true,
     .text = "number of newest checkpoints to keep; an older one is removed when a new one is on disk"},
    {"checkpoint.best", OPT_STRING, AT(checkpoint.best), NULL,
     .text = "score of the evaluations, such as accuracy or loss: write a checkpoint after each best evaluation and "
             "keep it in addition; loss and other errors are better when smaller"},
    {"service.progress", OPT_ENUM, AT(service.progress), "auto", .words = WORDS_WHEN(WORD_TEXT),
     .live = true,
     .text = "progress line; auto shows it if standard error, or mpirun's, is a terminal and the job not in the "
             "background"},
    {"service.log_every", OPT_INT, AT(service.log_every), "1", 0, BIG,
     .live = true, .text = "log a line every N steps; 0: none"},
    {"service.tensorboard", OPT_BOOL, AT(service.tensorboard), "no",
     .text = "write event files for TensorBoard to the run directory: loss, accuracy, learning rate, speed, "
             "waiting, evaluations"},
    {"service.csv", OPT_BOOL, AT(service.csv), "no",
     .text = "write the numbers of each step to metrics.csv in the run directory, a row per step"},
    {"service.mllog", OPT_TEXTS, AT(service.mllog), NULL,
     .text = "\"KEY=VALUE\": write mllog.txt to the run directory, as MLPerf's compliance checker reads it, with these "
             "values beside those of the run: submission_org, submission_platform, submission_division, "
             "submission_benchmark"},
    {"service.control", OPT_ENUM, AT(service.control), "auto", .words = WORDS_WHEN(WORD_TEXT),
     .text = "socket control.sock in the run directory for mpstagectl(1); auto trains without it, with a note, if "
             "the file system has no sockets"},
    {"service.metrics", OPT_STRING, AT(service.metrics), NULL,
     .text = "address and port where Prometheus reads metrics, such as \"127.0.0.1:9464\", \"[::1]:9464\" or "
             "\":9464\" (127.0.0.1); port 0 is a free one, which the log names. Anyone who reaches it can read. no: "
             "nowhere, the default"},
    {"service.metrics_every", OPT_INT, AT(service.metrics_every), "1", 1, BIG,
     .text = "write every Nth step to metrics.jsonl, besides the first and the last one before any other line"},
    {"service.stages_every", OPT_INT, AT(service.stages_every), "1", 0, BIG,
     .text = "write the stages of every Nth step to metrics.jsonl, besides the first; 0: never"},
    {"generate.prompts", OPT_FILE, AT(generate.prompts), NULL,
     .text = "prompts: JSON lines with input_ids, messages or text"},
    {"generate.prompt", OPT_TEXTS, AT(generate.prompt), NULL,
     .text = "a prompt, after those of generate.prompts"},
    {"generate.every_steps", OPT_INT, AT(generate.every_steps), "0", 0, BIG,
     .text = "while training a decoder, continue the prompts after every N steps and after the last one, and write "
             "the texts to metrics.jsonl; 0: never"},
    {"generate.max_tokens", OPT_INT, AT(generate.max_tokens), "128", 1, 1 << 24,
     .text = "the most tokens that are added to a prompt"},
    {"generate.temperature", OPT_REAL, AT(generate.temperature), "0", 0, 1e3,
     .text = "divides the logits before a token is drawn; 0: always the most likely token"},
    {"generate.top_k", OPT_INT, AT(generate.top_k), "0", 0, 1 << 24,
     .text = "draw among this many most likely tokens; 0: among all"},
    {"generate.top_p", OPT_REAL, AT(generate.top_p), "1", 0, 1,
     .text = "draw among the most likely tokens whose probabilities add up to this"},
    {"generate.seed", OPT_INT, AT(generate.seed), "1", 0, BIG, .text = "seed of the drawing"},
    {"generate.logprobs", OPT_BOOL, AT(generate.logprobs), "no",
     .text = "also write the logarithm of each token's probability, before temperature, top_k and top_p"},
    {"generate.stop", OPT_TEXTS, AT(generate.stop), NULL,
     .text = "texts that end a continuation, which contains them"},
    {NULL},
};
