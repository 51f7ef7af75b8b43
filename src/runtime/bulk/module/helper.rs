//! The functions that do a bulk operation in pieces.
//!
//! Memories and tables never shrink, and nothing else of the instance runs while one of its
//! functions waits in a look at the epoch. So what is in bounds at the start stays in bounds.

use wasm_encoder::{BlockType, FuncType, Function, InstructionSink, RefType, ValType};
use wasmparser::{MemoryType, Operator, TableType};
use wasmtime::Result;

use super::{Added, Module, nth};
use crate::runtime::bulk::Piece;

/// The parameters of a bulk operation: where to, what or where from, how much.
const TO: u32 = 0;
const FROM: u32 = 1;
const LENGTH: u32 = 2;

/// A bulk operation with all that it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Bulk {
    MemoryFill { memory: u32 },
    MemoryCopy { to: u32, from: u32 },
    MemoryInit { memory: u32, data: u32 },
    TableFill { table: u32 },
    TableCopy { to: u32, from: u32 },
    TableInit { table: u32, elements: u32 },
}

/// How the bounds of an operand are known.
#[derive(Debug, Clone, Copy)]
enum Bounds {
    /// By `memory.size`, in pages of two to the power of this.
    Memory { index: u32, page_log2: u32 },
    /// By `table.size`.
    Table { index: u32 },
    /// Of a segment, which may have been dropped meanwhile: then the first piece is out of bounds,
    /// and nothing was written yet.
    Segment { length: u64 },
}

/// One of the first two parameters, if it is a place.
#[derive(Debug, Clone, Copy)]
struct Operand {
    bounds: Bounds,
    is_64: bool,
}

/// A bulk operation with the types of what it names.
#[derive(Debug)]
pub(super) struct Place {
    bulk: Bulk,
    to: Operand,
    /// None for a fill.
    from: Option<Operand>,
    /// The type of the second parameter of a fill.
    value: ValType,
}

impl Bulk {
    pub(super) fn of(operator: &Operator<'_>) -> Option<Self> {
        Some(match *operator {
            Operator::MemoryFill { mem } => Self::MemoryFill { memory: mem },
            Operator::MemoryCopy { dst_mem, src_mem } => Self::MemoryCopy {
                to: dst_mem,
                from: src_mem,
            },
            Operator::MemoryInit { data_index, mem } => Self::MemoryInit {
                memory: mem,
                data: data_index,
            },
            Operator::TableFill { table } => Self::TableFill { table },
            Operator::TableCopy {
                dst_table,
                src_table,
            } => Self::TableCopy {
                to: dst_table,
                from: src_table,
            },
            Operator::TableInit { elem_index, table } => Self::TableInit {
                table,
                elements: elem_index,
            },
            _ => return None,
        })
    }

    /// The length up to which it is done at once.
    pub(super) fn most(self, piece: Piece) -> u64 {
        u64::from(self.piece(piece))
    }

    fn piece(self, piece: Piece) -> u32 {
        match self {
            Self::MemoryFill { .. } | Self::MemoryCopy { .. } | Self::MemoryInit { .. } => {
                piece.bytes
            }
            Self::TableFill { .. } | Self::TableCopy { .. } | Self::TableInit { .. } => {
                piece.elements
            }
        }
    }

    pub(super) fn place(self, module: &Module<'_>) -> Result<Place> {
        let memory =
            |index| -> Result<_> { Ok(memory(index, nth(&module.memories, index, "memory")?)) };
        let table = |index| -> Result<_> { Ok(table(index, nth(&module.tables, index, "table")?)) };
        let (to, from) = match self {
            Self::MemoryFill { memory: to } => (memory(to)?, None),
            Self::MemoryCopy { to, from } => (memory(to)?, Some(memory(from)?)),
            Self::MemoryInit { memory: to, data } => (
                memory(to)?,
                Some(segment(*nth(&module.data, data, "data segment")?)),
            ),
            Self::TableFill { table: to } => (table(to)?, None),
            Self::TableCopy { to, from } => (table(to)?, Some(table(from)?)),
            Self::TableInit {
                table: to,
                elements,
            } => (
                table(to)?,
                Some(segment(*nth(&module.elements, elements, "elem segment")?)),
            ),
        };
        let value = match self {
            Self::TableFill { table } => ValType::Ref(RefType::try_from(
                nth(&module.tables, table, "table")?.element_type,
            )?),
            _ => ValType::I32,
        };
        Ok(Place {
            bulk: self,
            to,
            from,
            value,
        })
    }

    fn emit(self, code: &mut InstructionSink<'_>) {
        match self {
            Self::MemoryFill { memory } => code.memory_fill(memory),
            Self::MemoryCopy { to, from } => code.memory_copy(to, from),
            Self::MemoryInit { memory, data } => code.memory_init(memory, data),
            Self::TableFill { table } => code.table_fill(table),
            Self::TableCopy { to, from } => code.table_copy(to, from),
            Self::TableInit { table, elements } => code.table_init(table, elements),
        };
    }
}

fn memory(index: u32, memory: &MemoryType) -> Operand {
    Operand {
        bounds: Bounds::Memory {
            index,
            page_log2: memory.page_size_log2.unwrap_or(16),
        },
        is_64: memory.memory64,
    }
}

fn table(index: u32, table: &TableType) -> Operand {
    Operand {
        bounds: Bounds::Table { index },
        is_64: table.table64,
    }
}

fn segment(length: u32) -> Operand {
    Operand {
        bounds: Bounds::Segment {
            length: u64::from(length),
        },
        is_64: false,
    }
}

impl Operand {
    fn index_type(self) -> ValType {
        if self.is_64 {
            ValType::I64
        } else {
            ValType::I32
        }
    }

    /// The end of what it may name, as 64 bits.
    fn end(self, code: &mut InstructionSink<'_>) {
        match self.bounds {
            Bounds::Memory { index, page_log2 } => {
                code.memory_size(index);
                widen(code, self.is_64);
                code.i64_const(i64::from(page_log2)).i64_shl();
            }
            Bounds::Table { index } => {
                code.table_size(index);
                widen(code, self.is_64);
            }
            Bounds::Segment { length } => {
                code.i64_const(length.cast_signed());
            }
        }
    }
}

fn widen(code: &mut InstructionSink<'_>, is_64: bool) {
    if !is_64 {
        code.i64_extend_i32_u();
    }
}

fn constant(code: &mut InstructionSink<'_>, is_64: bool, value: u32) {
    if is_64 {
        code.i64_const(i64::from(value));
    } else {
        code.i32_const(value.cast_signed());
    }
}

fn add(code: &mut InstructionSink<'_>, is_64: bool) {
    if is_64 {
        code.i64_add();
    } else {
        code.i32_add();
    }
}

impl Place {
    /// True if it cannot do more than a piece without a trap.
    pub(super) fn is_small(&self, piece: Piece) -> bool {
        match self.from.map(|from| from.bounds) {
            Some(Bounds::Segment { length }) => length <= self.bulk.most(piece),
            _ => false,
        }
    }

    /// The function that does it in pieces.
    pub(super) fn helper(&self, piece: Piece) -> Added {
        let length = Length {
            is_64: self.to.is_64 && self.from.is_none_or(|from| from.is_64),
            piece: self.bulk.piece(piece),
        };
        let length_type = if length.is_64 {
            ValType::I64
        } else {
            ValType::I32
        };
        let second = self.from.map_or(self.value, Operand::index_type);
        let mut body = Function::new([]);
        let mut code = body.instructions();
        code.block(BlockType::Empty);
        length.is_more_than_a_piece(&mut code);
        code.i32_eqz().br_if(0);
        self.leave_if_out_of_bounds(length, &mut code);
        if matches!(self.bulk, Bulk::MemoryCopy { .. } | Bulk::TableCopy { .. }) {
            // Two numbers may be those of one memory, so the direction counts for all copies.
            code.local_get(TO);
            widen(&mut code, self.to.is_64);
            code.local_get(FROM);
            widen(&mut code, self.from.is_some_and(|from| from.is_64));
            code.i64_gt_u().if_(BlockType::Empty);
            self.backward(length, &mut code);
            code.else_();
            self.forward(length, &mut code);
            code.end();
        } else {
            self.forward(length, &mut code);
        }
        code.end();
        // What is left, all that was little, or a trap.
        code.local_get(TO).local_get(FROM).local_get(LENGTH);
        self.bulk.emit(&mut code);
        code.end();
        Added {
            signature: FuncType::new([self.to.index_type(), second, length_type], []),
            body,
        }
    }

    /// Leaves the block, for the operation itself to trap, if any of it is out of bounds.
    fn leave_if_out_of_bounds(&self, length: Length, code: &mut InstructionSink<'_>) {
        for (local, operand) in [(TO, Some(self.to)), (FROM, self.from)] {
            let Some(operand) = operand else { continue };
            operand.end(code);
            length.get_64(code);
            code.i64_lt_u().br_if(0);
            operand.end(code);
            length.get_64(code);
            code.i64_sub().local_get(local);
            widen(code, operand.is_64);
            code.i64_lt_u().br_if(0);
        }
    }

    fn forward(&self, length: Length, code: &mut InstructionSink<'_>) {
        code.loop_(BlockType::Empty);
        code.local_get(TO).local_get(FROM);
        constant(code, length.is_64, length.piece);
        self.bulk.emit(code);
        for (local, operand) in [(TO, Some(self.to)), (FROM, self.from)] {
            let Some(operand) = operand else { continue };
            code.local_get(local);
            constant(code, operand.is_64, length.piece);
            add(code, operand.is_64);
            code.local_set(local);
        }
        length.shorten(code);
        length.is_more_than_a_piece(code);
        code.br_if(0).end();
    }

    fn backward(&self, length: Length, code: &mut InstructionSink<'_>) {
        code.loop_(BlockType::Empty);
        length.shorten(code);
        for (local, operand) in [(TO, Some(self.to)), (FROM, self.from)] {
            let Some(operand) = operand else { continue };
            code.local_get(local).local_get(LENGTH);
            if operand.is_64 {
                widen(code, length.is_64);
            }
            add(code, operand.is_64);
        }
        constant(code, length.is_64, length.piece);
        self.bulk.emit(code);
        length.is_more_than_a_piece(code);
        code.br_if(0).end();
    }
}

/// The third parameter.
#[derive(Debug, Clone, Copy)]
struct Length {
    is_64: bool,
    piece: u32,
}

impl Length {
    fn get_64(self, code: &mut InstructionSink<'_>) {
        code.local_get(LENGTH);
        widen(code, self.is_64);
    }

    fn is_more_than_a_piece(self, code: &mut InstructionSink<'_>) {
        code.local_get(LENGTH);
        constant(code, self.is_64, self.piece);
        if self.is_64 {
            code.i64_gt_u();
        } else {
            code.i32_gt_u();
        }
    }

    fn shorten(self, code: &mut InstructionSink<'_>) {
        code.local_get(LENGTH);
        constant(code, self.is_64, self.piece);
        if self.is_64 {
            code.i64_sub();
        } else {
            code.i32_sub();
        }
        code.local_set(LENGTH);
    }
}
